"""Runs a shoal.Model: gathers arrays, calls predict, checks what it returns."""

from __future__ import annotations

import inspect
import types
from typing import Any

import numpy as np

from shoal import _declare, _dtypes, _faults, _returns
from shoal._declare import Declaration
from shoal._spec import Input


class Error(Exception):
    """Raise it in predict to choose the clients' error text, and the code that becomes their status."""

    def __init__(self, message: str, code: str = "INVALID_ARG"):
        super().__init__(message)
        if code not in _CODES:
            raise ValueError(f"code is {code!r}, want one of {', '.join(_CODES)}")
        self.code = code


_CODES = (
    "UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED",
)  # fmt: skip


class Batch(dict):
    """The inputs of a batch by name, for a predict that takes them all as one argument."""

    rows: int
    """How many rows the arrays have."""
    ids: list[str]
    """The clients' names for the requests, one per request."""
    parameters: list[dict[str, Any]]
    """The requests' parameters, one dict per request."""
    counts: list[int]
    """How many of the rows belong to each request, in order."""

    def __init__(self, arrays: dict[str, Any], rows: int, requests: list[Any]):
        super().__init__(arrays)
        self.rows = rows
        self.ids = [r.id for r in requests]
        self.parameters = [dict(r.parameters or {}) for r in requests]
        self.counts = [r.rows for r in requests]


def find(module: types.ModuleType) -> Declaration | None:
    """The model that a file defines, None when it has none; of several, the one named `model`."""
    chosen = getattr(module, "model", None)
    if chosen is not None and (_is_model(chosen) or isinstance(chosen, _declare.Model)):
        return _declare.declaration(chosen)
    own = {name: v for name, v in vars(module).items() if _is_model(v) and v.__module__ == module.__name__}
    if len(own) > 1:
        raise TypeError(
            f"{module.__file__} has several models ({', '.join(own)}); say which is served with a line such as model = {next(iter(own))}"
        )
    for value in own.values():
        return _declare.declaration(value)
    return None


def _is_model(value: Any) -> bool:
    if inspect.isclass(value):
        return issubclass(value, _declare.Model) and value is not _declare.Model
    return callable(value) and isinstance(getattr(value, "__shoal__", None), Declaration)


class Handler:
    """The worker's handler for one instance of a user's model."""

    def __init__(self, declared: Declaration, init: dict[str, Any]):
        self._declared = declared
        self._init = init
        self._name: str = init.get("model_name") or declared.label
        config = init.get("config") or {}
        self._batched = bool(config.get("max_batch_size", declared.max_batch))
        self._inputs = list(declared.inputs.values())
        self._outputs = list(declared.outputs.values())
        self._optional = any(s.optional for s in self._inputs)
        self._model: Any = None

    def describe(self) -> dict[str, Any]:
        """The declaration as a configuration, completing what config.pbtxt says."""
        return self._declared.complete({"name": self._name, **(self._init.get("config") or {})})

    def start(self) -> None:
        """Makes the model and calls its load."""
        if self._init.get("config"):
            self.describe()  # raises if the configuration contradicts it
        self._model = self._declared.make()
        self._model.context = self._context()
        self._arguments = _arguments(self._declared, self._model.predict)
        self._returned = _returns.Checker(self._declared, self._model.predict)
        self._file = getattr(getattr(self._model.predict, "__code__", None), "co_filename", "")
        self._model.load()
        self._call = self._model.predict  # not before: load may set another
        self._plain = self._plain_inputs()

    def _context(self) -> _declare.Context:
        init = self._init
        gpu = str(init.get("instance_kind", "")).endswith("GPU")
        return _declare.Context(
            self._name, int(init.get("version", 1)), str(init.get("version_dir", "")),
            str(init.get("instance_name") or self._name), f"cuda:{init.get('device_id', 0)}" if gpu else "cpu",
            init.get("config") or {},
        )  # fmt: skip

    def _plain_inputs(self) -> tuple[str, ...] | None:
        """The inputs that predict takes, in its order, if it can get the worker's arrays unchanged; else None."""
        if not self._batched or self._optional or self._arguments is None:
            return None
        if any(not s.shape or s.datatype == "BF16" or s.text for s in self._inputs):
            return None
        parameters = inspect.signature(self._call).parameters.values()
        if [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] != self._arguments:
            return None
        return tuple(self._arguments)

    def execute(self, batch: Any) -> None:
        """Answers a batch with one call of predict if its requests' inputs are contiguous, else with one call each."""
        try:
            if self._plain is not None:  # most models; this path is hot
                given = batch.stacked(self._plain)
                if given is not None:
                    batch.respond(self._returned.check(self._call(*given), batch.rows))
                    return
            arrays = batch.inputs()
            whole = self._batched and not any(isinstance(arrays.get(s.name), list) for s in self._inputs)
            if whole and not (self._optional and len(batch.requests) > 1):
                outputs = self._predict(arrays, batch.rows, batch)
                batch.respond(outputs)
                return
            for request in batch.requests:
                request.respond(self._predict(request.inputs(), request.rows, request))
        except BaseException as error:  # includes sys.exit in a model
            message, code = self._told(error)
            batch.fail(message, code)

    def _predict(self, arrays: dict[str, np.ndarray], rows: int, asked: Any) -> list[tuple]:
        given = {s.name: _given(s, arrays.get(s.name), self._batched) for s in self._inputs}
        if self._arguments is None:
            result = self._call(Batch(given, rows, getattr(asked, "requests", None) or [asked]))
        else:
            result = self._call(**{n: given[n] for n in self._arguments})
        return self._returned.check(result, rows if self._batched else None)

    def _told(self, error: BaseException) -> tuple[str, str]:
        """The clients' text of an error, and its code; the log gets the traceback."""
        if isinstance(error, Error):
            return str(error), error.code
        from shoal import _worker  # not at the top: the worker imports the handlers

        if isinstance(error, _returns.ReturnError):
            text = f"model '{self._name}': {error}"
            _worker.log("error", text)
            return text, "INTERNAL"
        _worker.log("error", _faults.told(error))
        return f"model '{self._name}': {_faults.brief(error, self._file)}", "INTERNAL"

    def close(self) -> None:
        """Calls the model's close."""
        if self._model is not None:
            self._model.close()


def _given(spec: Input, array: np.ndarray | None, batched: bool) -> np.ndarray | None:
    """The array in the form that predict gets."""
    if array is None:
        return None
    if not spec.shape:  # a row of one value is one dimension on the wire and none here
        array = array.reshape(array.shape[:1]) if batched else array.reshape(())
    if spec.datatype == "BF16":
        return _dtypes.from_bf16(array)
    if spec.text == "str":
        out = np.empty(array.shape, dtype=np.object_)
        out.reshape(-1)[:] = [b.decode("utf-8", "replace") for b in array.reshape(-1).tolist()]
        return out
    return array


def _arguments(declared: Declaration, predict: Any) -> list[str] | None:
    """The inputs that predict takes by name; None when it takes one argument for all."""
    parameters = list(inspect.signature(predict).parameters.values())
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return list(declared.inputs)
    names = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    unknown = [n for n in names if n not in declared.inputs]
    if len(names) == 1 and unknown:
        return None
    needed = [p.name for p in parameters if p.name in unknown and p.default is p.empty]
    if needed or not names:
        raise TypeError(
            f"{declared.label}: predict({', '.join(names)}) asks for {', '.join(needed) or 'nothing'}, "
            f"but the inputs are {', '.join(declared.inputs)}; take them by these names, or all of them as one argument batch"
        )
    return [n for n in names if n in declared.inputs]
