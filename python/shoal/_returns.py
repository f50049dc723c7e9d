"""Checks the results of predict; errors name what is wrong and the line."""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from typing import Any

import numpy as np

from shoal._declare import Declaration
from shoal._spec import Output


class ReturnError(Exception):
    """The result of predict does not fit the model's declaration."""


class Checker:
    """Turns the results of one model's predict into its outputs."""

    def __init__(self, declared: Declaration, predict: Any):
        self._outputs = list(declared.outputs.values())
        self._predict = predict
        self._where: str | None = None
        self._only: Output | None = None  # the only output, if its arrays need no conversion
        if len(self._outputs) == 1 and self._outputs[0].shape and not self._outputs[0].text:
            self._only = self._outputs[0]
            self._dtype = self._only.dtype
        self._fits: tuple[int | None, tuple[int, ...]] | None = None  # rows and shape of the only output that were right before

    def check(self, result: Any, rows: int | None) -> list[tuple]:
        """The outputs as (name, array, data type); rows is None for a model that is not batched."""
        only = self._only
        if only is not None and type(result) is np.ndarray and result.dtype is self._dtype:
            if (rows, result.shape) != self._fits:
                self._check_shape(only, result, rows)
                self._fits = (rows, result.shape)
            return [(only.name, result, only.datatype)]
        return [(spec.name, self._array(spec, value, rows), spec.datatype) for spec, value in self._sorted(result)]

    def _sorted(self, result: Any) -> list[tuple[Output, Any]]:
        """The declared outputs with their values."""
        outputs = self._outputs
        if len(outputs) == 1 and result is not None and not isinstance(result, dict):
            return [(outputs[0], result)]
        names = ", ".join(s.name for s in outputs)
        if isinstance(result, dict):
            missing = [s.name for s in outputs if s.name not in result]
            unknown = [str(k) for k in result if all(k != s.name for s in outputs)]
            if missing or unknown:
                wrong = f"misses {', '.join(missing)}" if missing else f"has {', '.join(unknown)}, which is no output"
                raise self._wrong(f"a dict that {wrong}; the outputs are {names}")
            return [(s, result[s.name]) for s in outputs]
        if result is None:
            raise self._wrong(f"None, want {names}: is a return missing?")
        if not isinstance(result, (tuple, list)):
            raise self._wrong(f"{_kind(result)}, want {len(outputs)} arrays: {names}")
        if len(result) != len(outputs):
            raise self._wrong(f"{len(result)} values, want {len(outputs)}: {names}")
        return list(zip(outputs, result))

    def _array(self, spec: Output, value: Any, rows: int | None) -> np.ndarray:
        try:
            array = _as_array(spec, value)
        except (TypeError, ValueError) as error:
            raise self._wrong(f"{_kind(value)} as {spec.name}, which does not become an array: {error}") from None
        if array.dtype != spec.dtype:
            array = self._cast(spec, array)
        self._check_shape(spec, array, rows)
        if not spec.shape:
            array = array.reshape((-1, 1) if rows is not None else (1,))
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)

    def _cast(self, spec: Output, array: np.ndarray) -> np.ndarray:
        if spec.text or not np.can_cast(array.dtype, spec.dtype, "same_kind"):
            raise self._wrong(
                f"{spec.name} with type {array.dtype}, want {spec.text or spec.dtype}"
                + ("" if spec.text else f"; convert it with .astype({spec.dtype.name!r}) if that is meant")
            )
        return array.astype(spec.dtype)

    def _check_shape(self, spec: Output, array: np.ndarray, rows: int | None) -> None:
        head = () if rows is None else (rows,)
        want = head + spec.shape
        if len(array.shape) == len(want) and all(w in (-1, g) for w, g in zip(want, array.shape)):
            return
        if not spec.shape and array.shape == head + (1,):
            return
        told = ", ".join("any" if d == -1 else str(d) for d in want) + ("," if len(want) == 1 else "")
        why = ""
        if rows is not None:
            why = f": one row for each of the batch's {rows}, each of shape {list(spec.shape)}"
        raise self._wrong(f"{spec.name} with shape {array.shape}, want ({told}){why}")

    def _wrong(self, what: str) -> ReturnError:
        return ReturnError(f"predict returned {what} ({self._place()})")

    def _place(self) -> str:
        if self._where is None:
            self._where = _returns_of(self._predict)
        return self._where


def _as_array(spec: Output, value: Any) -> np.ndarray:
    """The value as an array; torch tensors are copied to the host first."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
        value = value.numpy()
    if spec.text:
        array = np.asarray(value)
        if array.dtype == np.object_ and any(v is None for v in array.flat):
            raise TypeError("it has None where a string is wanted")
        return array.astype(np.object_) if array.dtype.kind in "SU" else array
    array = np.asarray(value)
    if array.dtype == np.object_:
        raise TypeError("its rows differ in length, or are no numbers")
    return array


def _kind(value: Any) -> str:
    name = "array" if isinstance(value, np.ndarray) else type(value).__name__
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"


def _returns_of(function: Any) -> str:
    """The line of a function's return statement, or the lines of all of them."""
    try:
        lines, first = inspect.getsourcelines(function)
        file = os.path.basename(inspect.getsourcefile(function) or "")
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        code = getattr(function, "__code__", None)
        return f"line {code.co_firstlineno}" if code else "its source is not at hand"
    found = [first + n.lineno - 1 for n in _own_returns(tree.body[0])]
    if not found:
        return f"line {first} of {file}"
    if len(found) == 1:
        return f"line {found[0]} of {file}"
    return f"one of the returns in lines {', '.join(map(str, found))} of {file}"


def _own_returns(node: ast.AST) -> list[ast.Return]:
    """The return statements of a function, without those of functions inside it."""
    found: list[ast.Return] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Return):
            found.append(child)
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            found += _own_returns(child)
    return found
