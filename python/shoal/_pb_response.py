"""TritonError, InferenceResponse and InferenceResponseSender of triton_python_backend_utils."""

from __future__ import annotations

import enum
import json
import threading
from typing import Any, Sequence

from shoal._pb_tensor import Tensor, TritonModelException

RESPONSE_COMPLETE_FINAL = 1


class _Code(enum.IntEnum):
    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    def __str__(self) -> str:
        return f"__ErrorCode.{self.name}"  # what Triton's prints, and models write into logs and texts


class TritonError:
    """The error of one request, with a code that becomes the client's status."""

    UNKNOWN = _Code.UNKNOWN
    INTERNAL = _Code.INTERNAL
    NOT_FOUND = _Code.NOT_FOUND
    INVALID_ARG = _Code.INVALID_ARG
    UNAVAILABLE = _Code.UNAVAILABLE
    UNSUPPORTED = _Code.UNSUPPORTED
    ALREADY_EXISTS = _Code.ALREADY_EXISTS
    CANCELLED = _Code.CANCELLED

    def __init__(self, message: str, code: _Code = _Code.INTERNAL):
        if not isinstance(message, str):
            raise TypeError(f"TritonError wants a str as its message, got {type(message).__name__}")
        self._message = message
        self._code = _Code(code)

    def message(self) -> str:
        """The text that the client gets."""
        return self._message

    def code(self) -> _Code:
        """The error's code."""
        return self._code


class InferenceResponse:
    """What the model answers to one request: tensors, or an error."""

    __slots__ = ("_error", "_outputs", "_parameters")

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: dict[str, Any] | None = None,
    ):
        self._outputs = list(output_tensors)
        for tensor in self._outputs:
            if type(tensor) is not Tensor:
                _check_tensor(tensor)
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"error wants a pb_utils.TritonError, got {type(error).__name__}")
        self._error = error
        self._parameters = None if parameters is None else check_parameters(parameters)

    def output_tensors(self) -> list[Tensor]:
        """The response's tensors."""
        return self._outputs

    def has_error(self) -> bool:
        """Whether the response is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """The response's error, or None."""
        return self._error

    def parameters(self) -> str:
        """The response's parameters, as JSON."""
        return json.dumps(self._parameters or {})

    def _deliver(self, batch: Any, i: int) -> None:
        """Answers request i of a batch of the worker's."""
        if self._error is not None:
            batch.fail_one(i, self._error._message, self._error._code.name)
            return
        outputs = []
        for tensor in self._outputs:
            outputs.append((tensor._name, tensor._array, tensor._datatype))
        batch.answer(i, outputs, self._parameters, False)

    def _send(self, raw: Any, **how: bool) -> None:
        """Sends the response as an answer to a request of the worker's; a decoupled one takes final=True."""
        if self._error is not None:
            raw.fail(self._error._message, self._error._code.name, **how)
            return
        wanted = raw.wanted
        raw.respond([(t._name, t._array, t._datatype) for t in self._outputs if t._name in wanted], self._parameters, **how)


def _check_tensor(tensor: Any) -> None:
    if tensor is None:
        raise TritonModelException("Output tensor for inference response should not be empty.")
    if not isinstance(tensor, Tensor):
        raise TypeError(f"output_tensors wants pb_utils.Tensor objects, got {type(tensor).__name__}")


def check_parameters(parameters: Any) -> dict[str, Any]:
    """Parameters of a request or response that a user made, or an exception."""
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect a dict as parameters, got {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
    return dict(parameters)


class Exchange:
    """The state of the answers to one request, shared by the request and its sender.

    When neither is left and the answer is not complete, nobody can complete it:
    the request then fails, so that its client does not wait for ever.
    """

    def __init__(self, raw: Any, decoupled: bool):
        self.raw = raw
        self.decoupled = decoupled
        self.settled = threading.Event()
        self._mutex = threading.Lock()
        self._sent = 0
        self._closed = False

    def send(self, response: InferenceResponse | None, flags: int) -> None:
        """Checks and sends a sender's response."""
        if flags not in (0, RESPONSE_COMPLETE_FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and flags == 0:
            raise TritonModelException("Inference Response object must be provided when the response flags is set to zero.")
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"send wants a pb_utils.InferenceResponse, got {type(response).__name__}")
        with self._mutex:
            self._check(response)
            final = flags == RESPONSE_COMPLETE_FINAL
            if response is not None and self.decoupled:
                response._send(self.raw, final=final)
            elif response is not None:
                response._send(self.raw)
            self._sent += 1
            if final:
                self._close()

    def _check(self, response: InferenceResponse | None) -> None:
        if not self.decoupled:
            if response is not None and self._sent > 0:
                raise TritonModelException("Unable to send response. Non-decoupled model cannot send more than one response.")
            if response is None and self._sent == 0:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send complete final before sending a response."
                )
        if self._closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")

    def _close(self) -> None:
        self._closed = True
        if self.decoupled:
            self.raw.finish()
        self.settled.set()

    def fail(self, message: str, code: str = "INTERNAL") -> None:
        """Ends the request with an error, unless it is complete."""
        with self._mutex:
            if self.complete():
                return
            if self.decoupled:
                self.raw.fail(message, code, final=True)
            else:
                self.raw.fail(message, code)
            self._sent += 1
            self._close()

    def complete(self) -> bool:
        """Whether all responses were sent."""
        return self._closed or (not self.decoupled and self._sent > 0)

    def __del__(self):
        try:
            self.fail(_ABANDONED if self.decoupled else _UNANSWERED)
        finally:
            self.settled.set()


_ABANDONED = (
    "the model let go of the request's response sender without sending TRITONSERVER_RESPONSE_COMPLETE_FINAL; "
    "every request needs it, with its last response or alone"
)
_UNANSWERED = (
    "the model's execute gave no response for this request: return one InferenceResponse per request, "
    "or send it with the request's response sender"
)


class InferenceResponseSender:
    """Sends the responses of one request, from whichever thread has them."""

    __slots__ = ("_exchange", "__weakref__")

    def __init__(self, exchange: Exchange):
        self._exchange = exchange

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Sends a response; flags is TRITONSERVER_RESPONSE_COMPLETE_FINAL with the last one, or alone after it."""
        self._exchange.send(response, flags)

    def is_cancelled(self) -> bool:
        """Whether the client has given the request up."""
        return self._exchange.raw.cancelled()
