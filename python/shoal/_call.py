"""call and acall: a shoal.Model's requests to other models of its server."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from shoal import _calls, _dtypes
from shoal._model import Error


def call(model: str, /, **inputs: Any) -> Any:
    """Asks another model of this server, from within predict. Inputs are arrays by name, with their rows; the result is the
    output's array, or a dict of arrays where the model has several outputs. An error of the model is raised as shoal.Error."""
    calls = _open(model)
    return calls.ask(_tensors(model, inputs), (model, -1, ()), _calls.NOTHING, _result)


async def acall(model: str, /, **inputs: Any) -> Any:
    """call for coroutines."""
    calls = _open(model)
    loop = asyncio.get_running_loop()
    answered = loop.create_future()

    def settle(answer: _calls.Answer) -> None:
        if not answered.cancelled():
            answered.set_result(answer)

    def take(answer: _calls.Answer) -> None:
        loop.call_soon_threadsafe(settle, answer)

    _, slot = calls.start(_tensors(model, inputs), (model, -1, ()), _calls.NOTHING, take, calls.holds(in_loop=True))
    answer = await answered  # when this is cancelled the slot stays the call's
    try:
        return _result(calls, slot, answer)
    finally:
        calls.free(slot)


def _open(model: str) -> _calls.Calls:
    from shoal import _worker  # not at the top: the worker imports the handlers

    calls = _worker.calls()
    if calls is None:
        raise RuntimeError(f"shoal.call({model!r}) works only while the server runs a batch: call it in predict")
    return calls


def _tensors(model: str, inputs: dict[str, Any]) -> list[tuple]:
    made = []
    for name, value in inputs.items():
        array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
        datatype = _dtypes.of_numpy(array.dtype)
        if datatype is None:
            raise TypeError(f"shoal.call({model!r}): input {name} is an array of {array.dtype}, which requests cannot carry")
        if array.dtype.name == "bfloat16":
            array = array.view(np.uint16)
        made.append((name, array, datatype))
    return made


def _result(calls: _calls.Calls, slot: Any, answer: _calls.Answer) -> Any:
    if answer.error is not None:
        raise Error(answer.error, _calls.ERRORS.get(answer.code, "INTERNAL"))
    found = {name: _dtypes.from_bf16(array) if datatype == "BF16" else array for name, array, datatype in calls.outputs(slot, answer)}
    return next(iter(found.values())) if len(found) == 1 else found
