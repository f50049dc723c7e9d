"""InferenceRequest.exec and async_exec of triton_python_backend_utils, and the functions that load other models."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from shoal import _calls
from shoal._pb_response import InferenceResponse, TritonError
from shoal._pb_tensor import Tensor, TritonModelException


_worker: Any = None


def _server() -> Any:
    global _worker
    if _worker is None:
        from shoal import _worker as module  # not at the top: the worker imports the handlers

        _worker = module
    return _worker


def _open() -> _calls.Calls:
    calls = (_worker or _server()).calls()
    if calls is None:
        raise TritonModelException("BLS is only supported during the 'execute' function.")
    return calls


def _parts(request: Any) -> tuple[list[tuple], tuple, _calls.Told]:
    tensors = [(t._name, t._array, t._datatype) for t in request.inputs()]
    target = request.model_name(), request.model_version(), tuple(request.requested_output_names())
    rare = request._rare()
    if rare is None:
        return tensors, target, _calls.NOTHING
    *simple, parameters, trace = rare
    return tensors, target, _calls.Told(*simple, json.loads(parameters), trace._name if trace else None)


def _response(calls: _calls.Calls, slot: Any, answer: _calls.Answer) -> InferenceResponse:
    if answer.error is not None:
        return InferenceResponse(error=TritonError(answer.error, min(answer.code, 7)))
    return InferenceResponse([Tensor._of(*t) for t in calls.outputs(slot, answer)], parameters=answer.params)


def execute(request: Any, decoupled: bool) -> Any:
    """Sends a request to another model."""
    calls = _open()
    parts = _parts(request)
    if decoupled:
        return ResponseIterator(_calls.Waiter(calls, *parts, calls.holds(), decoupled=True))
    return calls.ask(*parts, _response)


def execute_async(request: Any, decoupled: bool) -> Any:
    """Sends a request to another model from a coroutine, which awaits what this returns."""
    calls = _open()
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    parts = _parts(request)
    if decoupled:
        future.set_result(ResponseIterator(_calls.Waiter(calls, *parts, calls.holds(in_loop=True), decoupled=True)))
        return future
    slot = None

    def take(answer: _calls.Answer) -> None:
        loop.call_soon_threadsafe(settle, answer)

    def settle(answer: _calls.Answer) -> None:
        try:
            if not future.cancelled():
                future.set_result(_response(calls, slot, answer))
        finally:
            calls.free(slot)

    _, slot = calls.start(*parts, take, calls.holds(in_loop=True))
    return future


class ResponseIterator:
    """The responses of a decoupled model, as they come. The last may be empty."""

    def __init__(self, waiter: _calls.Waiter):
        self._waiter = waiter

    def __iter__(self) -> ResponseIterator:
        return self

    def __next__(self) -> InferenceResponse:
        if self._waiter.finished:
            raise StopIteration
        return self._waiter.next(_response)

    def cancel(self) -> None:
        """Wants no more responses."""
        self._waiter.stop()

    def __del__(self):
        try:
            self._waiter.stop()
        except Exception:  # the server is gone, or this interpreter is ending
            pass


def load_model(model_name: str, config: str = "", files: dict[str, bytes] | None = None) -> None:
    """Loads a model of this server, with a configuration and files in place of the repository's."""
    given = {k.removeprefix("file:"): base64.b64encode(v).decode() for k, v in (files or {}).items()}
    _control("load", model_name, config=config, **({"files": given} if given else {}))


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Unloads a model of this server."""
    _control("unload", model_name, dependents=unload_dependents)


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Whether a model of this server is ready."""
    return bool(_control("ready", model_name, version=int(model_version) if model_version else -1))


def _control(act: str, model: str, **more: Any) -> Any:
    try:
        return _server().control(act, model, **more)
    except RuntimeError as error:
        raise TritonModelException(str(error)) from None
