"""The declaration of one tensor of a model: Input and Output."""

from __future__ import annotations

from typing import Any, Sequence, Union

import numpy as np

from shoal import _dtypes

Shape = Union[int, Sequence[int]]
DType = Union[str, type, np.dtype]

_TEXT = {"str": "str", "string": "str", "bytes": "bytes", "BYTES": "bytes", "TYPE_STRING": "str"}


class Spec:
    """One tensor of a model: its type and the shape of one row."""

    def __init__(self, dtype: DType, shape: Shape = (), *, name: str = ""):
        self.name = name
        self.text = _text(dtype)  # "str", "bytes" or "" for numbers
        self.datatype = "BYTES" if self.text else _datatype(dtype)
        self.shape: tuple[int, ...] = (shape,) if isinstance(shape, int) else tuple(int(d) for d in shape)
        if any(d < -1 or d == 0 for d in self.shape):
            raise ValueError(f"{type(self).__name__}: shape {list(self.shape)}: dimensions are 1 or more, or -1 for any")

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    def __repr__(self) -> str:
        return f"shoal.{type(self).__name__}({self.text or self.dtype.name!r}, {list(self.shape)})"

    @property
    def dtype(self) -> np.dtype:
        """The numpy type of the arrays that the model sees; BF16 is handed over as float32."""
        return np.dtype(np.float32) if self.datatype == "BF16" else _dtypes.NUMPY[self.datatype]

    def config(self) -> dict[str, Any]:
        """The tensor in a model configuration; a row of one value has one dimension there."""
        return {
            "name": self.name,
            "data_type": _dtypes.config_name(self.datatype),
            "dims": list(self.shape) or [1],
        }


class Input(Spec):
    """An input: its type, and the shape of one row (without the batch; -1 is any size).

    `dtype` is a numpy type or its name ("float32", np.int64), "str" for text
    (arrays of str), "bytes" for raw strings, or "bfloat16" (arrays of float32).
    Without a shape a row is a single value. An optional input that a request
    does not have is None.
    """

    def __init__(self, dtype: DType, shape: Shape = (), *, name: str = "", optional: bool = False):
        super().__init__(dtype, shape, name=name)
        self.optional = optional

    def config(self) -> dict[str, Any]:
        return {**super().config(), **({"optional": True} if self.optional else {})}


class Output(Spec):
    """An output: its type, and the shape of one row (without the batch; -1 is any size)."""


def _text(dtype: DType) -> str:
    if dtype is str:
        return "str"
    if dtype is bytes:
        return "bytes"
    return _TEXT.get(dtype, "") if isinstance(dtype, str) else ""


def _datatype(dtype: DType) -> str:
    if isinstance(dtype, str):
        plain = dtype[len("TYPE_") :] if dtype.startswith("TYPE_") else dtype
        if plain in _dtypes.NUMPY:
            return plain
        if plain == "bfloat16":
            return "BF16"
    try:
        name = _dtypes.of_numpy(np.dtype(dtype))
    except TypeError:
        name = None
    if name is None or name == "BYTES":
        raise TypeError(
            f"{dtype!r} is not a type that tensors can have; use a numpy type such as 'float32', 'int64' or 'bool', "
            "'bfloat16', 'str' or 'bytes'"
        )
    return name
