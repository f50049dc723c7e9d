"""Runs a TritonPythonModel: the contract of Triton's Python backend."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import weakref
from typing import Any

import triton_python_backend_utils as pb_utils
from shoal import _faults
from shoal._pb_config import ModelConfig
from shoal._pb_host import Logger
from shoal._pb_request import received
from shoal._pb_response import Exchange, InferenceResponse


class Handler:
    """The worker's handler for one instance of a user's TritonPythonModel."""

    def __init__(self, cls: type, init: dict[str, Any], path: str):
        self.model_name: str = init.get("model_name", "")
        self.model_version = int(init.get("version", 1))
        self._class = cls
        self._init = init
        self._path = path
        self._name: str = init.get("instance_name") or self.model_name
        self._config: dict[str, Any] = init.get("config") or {}
        self.decoupled = bool(pb_utils.using_decoupled_model_transaction_policy(self._config))
        self._model: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        pb_utils._model_dir = os.path.dirname(path)

    def describe(self) -> dict[str, Any] | None:
        """The configuration as auto_complete_config leaves it, or None where the class has none."""
        if not hasattr(self._class, "auto_complete_config"):
            return None
        given = ModelConfig(json.dumps({"name": self.model_name, **self._config}))
        config = self._class.auto_complete_config(given)
        if not isinstance(config, ModelConfig):
            raise _faults.Refused(
                f"auto_complete_config function in model '{self.model_name}' must return a valid pb.ModelConfig object."
            )
        # The configuration file chooses the instances.
        return {k: v for k, v in config._model_config.items() if k != "instance_group"}

    def start(self) -> None:
        """Makes the model and calls its initialize."""
        self._model = self._class()
        if hasattr(self._model, "initialize"):
            self._model.initialize(self._args())
        self._call = getattr(self._model, "execute", None)  # not before: initialize may set another

    def _args(self) -> dict[str, str]:
        init = self._init
        return {
            "model_config": json.dumps(self._config, separators=(",", ":"), ensure_ascii=False),
            "model_instance_kind": str(init.get("instance_kind", "CPU")).replace("KIND_", ""),
            "model_instance_name": self._name,
            "model_instance_device_id": str(init.get("device_id", 0)),
            "model_repository": str(init.get("repository", "")),
            "model_version": str(self.model_version),
            "model_name": self.model_name,
        }

    def execute(self, batch: Any) -> None:
        """Hands the batch's requests to the model and its answers to the requests."""
        requests = received(batch, self)
        try:
            if self._call is None:
                raise _faults.Refused(f"Python model {self._path} does not implement `execute` method.")
            result = self._call(requests)
            if type(result) is list and not self.decoupled:  # most models; this path is hot
                unanswered = self._answer(requests, result)
            else:
                unanswered = self._other(requests, result)
        except BaseException as error:  # includes sys.exit in a model
            self._failed(requests, error)
            return
        if not unanswered:
            return
        waiting = [(e.settled, weakref.ref(e)) for e in (r._answering() for r in unanswered)]
        del requests, unanswered  # from here on only the model keeps those that it will answer
        for settled, exchange in waiting:
            while not settled.wait(_LOOK):
                _give_up(exchange())

    def _other(self, requests: list, result: Any) -> list:
        """Goes on with what is no list of responses; returns the requests that the model answers later."""
        if asyncio.iscoroutine(result):
            future = asyncio.run_coroutine_threadsafe(result, self._event_loop())
            if self.decoupled:
                future.add_done_callback(lambda f: self._ended(requests, f))
                return []
            result = _awaited(future)
        if result is not None:
            return self._answer(requests, result)
        return [] if self.decoupled else [r for r in requests if not r._answered()]

    def _answer(self, requests: list, responses: Any) -> list:
        """Checks what execute returned as a whole, then sends it: a wrong list answers
        nobody. Returns the requests that the model answers later."""
        if self.decoupled:
            raise _faults.Refused(f"Python model '{self._name}' is using the decoupled mode and the execute function must return None.")
        if not isinstance(responses, list):
            raise _faults.Refused(f"Expected a list in the execute return, found type '{type(responses)}'.")
        if len(responses) != len(requests):
            raise _faults.Refused(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(responses)}\n"
            )
        for response in responses:
            if type(response) is not InferenceResponse and not isinstance(response, (InferenceResponse, type(None))):
                raise _faults.Refused(
                    f"Expected an 'InferenceResponse' object in the execute function return list, found type '{type(response)}'."
                )
        unanswered = []
        for request, response in zip(requests, responses):
            if response is not None:
                request._respond(response)
            elif not request._answered():
                unanswered.append(request)
        return unanswered

    def _failed(self, requests: list, error: BaseException) -> None:
        message = f"Failed to process the request(s) for model '{self._name}', message: {_faults.describe(error)}"
        text = _faults.told(error)
        if text:
            Logger.log_error(message if isinstance(error, _faults.Refused) else f"{message.splitlines()[0]}\n{text}")
        for request in requests:
            request._fail(message)

    def _ended(self, requests: list, future: Any) -> None:
        """Handles the end of an execute that ran in the background."""
        error = future.exception()
        try:
            if error is None and future.result() is not None:
                self._answer(requests, future.result())
        except _faults.Refused as refused:
            error = refused
        if error is not None:
            self._failed(requests, error)
        requests.clear()

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="asyncio", daemon=True).start()
        return self._loop

    def close(self) -> None:
        """Calls the model's finalize."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        if hasattr(self._model, "finalize"):
            self._model.finalize()


def _awaited(future: Any) -> Any:
    """The result or exception of the future's coroutine, without the frames that future.result() adds to the traceback."""
    error = future.exception()
    try:
        if error is not None:
            raise error
        return future.result()
    finally:
        future = error = None  # an exception's traceback has this call and what it holds


# How often unanswered requests are checked, in seconds.
_LOOK = 0.1


def _give_up(exchange: Exchange | None) -> None:
    """Ends a request whose client is gone: its model may never answer, and other requests wait."""
    if exchange is not None and exchange.raw.cancelled():
        exchange.fail("the client has gone", "CANCELLED")
