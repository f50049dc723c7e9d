"""InferenceRequest.exec and async_exec of triton_python_backend_utils, and the functions that load other models."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from shoal import _calls
from shoal._pb_response import InferenceResponse, TritonError
from shoal._pb_tensor import Tensor, TritonModelException


def _server() -> Any:
    from shoal import _worker  # not at the top: the worker imports the handlers

    return _worker


def _open() -> _calls.Calls:
    calls = _server().calls()
    if calls is None:
        raise TritonModelException("BLS is only supported during the 'execute' function.")
    return calls


def _told(request: Any, decoupled: bool) -> tuple[list[tuple], dict[str, Any]]:
    tensors = [(t._name, t._array, t._datatype) for t in request.inputs()]
    parameters = request.parameters()
    return tensors, _calls.message(
        request.model_name(), request.model_version(), request.request_id(), request.correlation_id(), request.flags(),
        request.timeout(), json.loads(parameters) if parameters != "{}" else None, request.requested_output_names(), decoupled,
    )  # fmt: skip


def _response(slot: Any, answer: dict[str, Any]) -> InferenceResponse:
    if answer.get("error") is not None:
        return InferenceResponse(error=TritonError(answer["error"], min(answer.get("code", 1), 7)))
    return InferenceResponse([Tensor._of(*t) for t in _calls.outputs(slot, answer)], parameters=answer.get("params"))


def execute(request: Any, decoupled: bool) -> Any:
    """Sends a request to another model."""
    calls = _open()
    tensors, told = _told(request, decoupled)
    if decoupled:
        return ResponseIterator(_calls.Waiter(calls, tensors, told, calls.holds()))
    return calls.ask(tensors, told, calls.holds(), _response)


def execute_async(request: Any, decoupled: bool) -> Any:
    """Sends a request to another model from a coroutine, which awaits what this returns."""
    calls = _open()
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    tensors, told = _told(request, decoupled)
    if decoupled:
        future.set_result(ResponseIterator(_calls.Waiter(calls, tensors, told, calls.holds(in_loop=True))))
        return future
    slot = None

    def take(answer: dict[str, Any]) -> None:
        loop.call_soon_threadsafe(settle, answer)

    def settle(answer: dict[str, Any]) -> None:
        try:
            if not future.cancelled():
                future.set_result(_response(slot, answer))
        finally:
            calls.free(slot)

    _, slot = calls.start(tensors, take, calls.holds(in_loop=True), **told)
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
