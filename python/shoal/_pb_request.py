"""InferenceRequest of triton_python_backend_utils."""

from __future__ import annotations

import enum
import json
from typing import TYPE_CHECKING, Any, Sequence

from shoal._pb_response import RESPONSE_COMPLETE_FINAL, Exchange, InferenceResponse, InferenceResponseSender, check_parameters
from shoal._pb_tensor import Tensor, TritonModelException

if TYPE_CHECKING:
    from shoal._pb_call import ResponseIterator

RELEASE_RESCHEDULE = 2

_pb_call: Any = None  # the module, once a model calls another: most never do


class MemoryType(enum.IntEnum):
    """Where a called model's outputs are wanted."""

    TRITONSERVER_MEMORY_CPU = 0
    TRITONSERVER_MEMORY_GPU = 2


class PreferredMemory:
    """A preference for where a called model's outputs are."""

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: int = 0):
        self._type = MemoryType(preferred_memory_type)
        self._device = preferred_device_id


class InferenceTrace:
    """The trace that a request belongs to."""

    def __init__(self, traced: tuple[str, tuple[int, int]] | None = None):
        self._context, self._name = traced or ("", None)

    def get_context(self) -> str | None:
        """The trace's context for what the model calls by itself, as JSON, when the server sends traces to OpenTelemetry; else None."""
        return json.dumps({"traceparent": self._context}) if self._context else None


def _calling() -> Any:
    global _pb_call
    from shoal import _pb_call as module

    _pb_call = module
    return module


def _check(name: str, value: Any, wanted: type | tuple[type, ...]) -> None:
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise TypeError(f"InferenceRequest: {name} is {value!r}, which is of type {type(value).__name__}")


class InferenceRequest:
    """A request: one that the model answers, or one that it sends to another model."""

    _trace: InferenceTrace | None = None

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] = (),
        requested_output_names: Sequence[str] = (),
        model_name: str = "",
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory | None = None,
        trace: InferenceTrace | None = None,
        parameters: dict[str, Any] | None = None,
    ):
        # A model that calls others makes one for each call, so that what is right is seen at once.
        if type(request_id) is not str:
            _check("request_id", request_id, str)
        if type(correlation_id) is not int:
            if correlation_id is not None and (not isinstance(correlation_id, (int, str)) or isinstance(correlation_id, bool)):
                raise TritonModelException("Correlation ID must be integer or string")
            _check("correlation_id", correlation_id, (int, str))
        if type(model_name) is not str:
            _check("model_name", model_name, str)
        if type(model_version) is not int:
            _check("model_version", model_version, int)
        if type(flags) is not int:
            _check("flags", flags, int)
        for name in requested_output_names:
            if type(name) is not str:
                _check("requested_output_names", name, str)
        for tensor in inputs:
            if tensor is None:
                raise TritonModelException(f"Input tensor for request with id '{request_id}' and model name '{model_name}' should not be empty.")
        self._id = request_id
        self._correlation = correlation_id
        self._inputs = list(inputs)
        self._wanted = set(requested_output_names)
        if "" in self._wanted:
            raise TritonModelException(f"Requested output name for request with id '{request_id}' and model name '{model_name}' should not be empty.")
        self._model = model_name
        self._version = model_version
        self._flags = flags
        self._timeout = timeout
        self._memory = preferred_memory
        self._trace = trace
        self._parameters = json.dumps(check_parameters(parameters)) if parameters is not None else "{}"

    def inputs(self) -> list[Tensor]:
        """The request's tensors."""
        return self._inputs

    def request_id(self) -> str:
        """The client's name for the request, or an empty string."""
        return self._id

    def correlation_id(self) -> int | str:
        """The sequence that the request belongs to, or 0."""
        return self._correlation

    def requested_output_names(self) -> set[str]:
        """The outputs that the client asked for: all, when it named none."""
        return self._wanted

    def model_name(self) -> str:
        """The model that is asked."""
        return self._model

    def model_version(self) -> int:
        """The version that is asked; -1 leaves it to the server."""
        return self._version

    def flags(self) -> int:
        """TRITONSERVER_REQUEST_FLAG_SEQUENCE_START and _END, or'ed."""
        return self._flags

    def set_flags(self, flags: int) -> None:
        """Sets what flags returns."""
        self._flags = flags

    def timeout(self) -> int:
        """The client's time limit in microseconds, or 0."""
        return self._timeout

    def parameters(self) -> str:
        """The request's parameters, as JSON."""
        return self._parameters

    def preferred_memory(self) -> PreferredMemory | None:
        """Where the outputs of a called model are wanted."""
        return self._memory

    def trace(self) -> InferenceTrace:
        """The trace that the request belongs to."""
        return self._trace or InferenceTrace()

    def is_cancelled(self) -> bool:
        """Whether the client has given the request up."""
        return False

    def get_response_sender(self) -> InferenceResponseSender:
        """What sends this request's responses."""
        raise TritonModelException(
            "Unable to send response. Response sender has no reference to the decoupled state of the model."
        )

    def set_release_flags(self, flags: int) -> None:
        """Sets what happens to the request after execute: with all flags but RESCHEDULE it ends."""
        if flags == RELEASE_RESCHEDULE:
            raise TritonModelException(
                "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE is not served yet: it comes with iterative sequences. "
                "Send the responses of a request from one execute, as a decoupled model does."
            )

    def exec(self, decoupled: bool = False) -> InferenceResponse | ResponseIterator:
        """Sends the request to another model of this server and waits for its response, or, with decoupled, returns an
        iterator over its responses. A response may be an error."""
        return (_pb_call or _calling()).execute(self, decoupled)

    def async_exec(self, decoupled: bool = False) -> Any:
        """Like exec, for `async def execute`: await it."""
        return (_pb_call or _calling()).execute_async(self, decoupled)

    def _rare(self) -> tuple | None:
        """What few calls have: id, sequence, flags, time-out, parameters, trace. None when this one has none of it."""
        if not (self._id or self._correlation or self._flags or self._timeout or self._trace) and self._parameters == "{}":
            return None
        return self._id, self._correlation, self._flags, self._timeout, self._parameters, self._trace


_tensor = Tensor._of


def received(batch: Any, owner: Any) -> list[InferenceRequest]:
    """The requests of a batch that came to the handler `owner`."""
    if not owner.decoupled:
        if batch.size == 1:
            return [_Received(batch, 0, owner)]
        return [_Received(batch, i, owner) for i in range(batch.size)]
    requests = []
    for raw in batch.requests:
        request = _Received(None, 0, owner)  # it outlives the batch
        request._raw = raw
        request._answering()
        requests.append(request)
    return requests


class _Received(InferenceRequest):
    """A request that the model answers. Its properties are made when they are first used."""

    def __init__(self, batch: Any, index: int, owner: Any):
        self._batch = batch
        self._index = index
        self._owner = owner
        self._raw = None  # the worker's request
        self._inputs = None
        self._flags = None
        self._exchange = None
        self._done = False  # answered without an exchange

    def _request(self) -> Any:
        if self._raw is None:
            self._raw = self._batch.request(self._index)
        return self._raw

    def inputs(self) -> list[Tensor]:
        if self._inputs is None:
            if self._batch is None:
                self._inputs = self._raw.parts(_tensor)
            else:
                self._inputs = self._batch.parts(self._index, _tensor)
        return self._inputs

    def request_id(self) -> str:
        return self._request().id

    def correlation_id(self) -> int | str:
        return self._request().correlation_id

    def requested_output_names(self) -> set[str]:
        return set(self._request().wanted)

    def model_name(self) -> str:
        return self._owner.model_name

    def model_version(self) -> int:
        return self._owner.model_version

    def flags(self) -> int:
        return self._request().flags if self._flags is None else self._flags

    def timeout(self) -> int:
        return self._request().timeout

    def parameters(self) -> str:
        return json.dumps(self._request().parameters, separators=(",", ":"), ensure_ascii=False)  # as the server writes it

    def preferred_memory(self) -> PreferredMemory | None:
        return None

    def trace(self) -> InferenceTrace:
        return InferenceTrace(self._request().trace)

    def is_cancelled(self) -> bool:
        return self._request().cancelled()

    def get_response_sender(self) -> InferenceResponseSender:
        return InferenceResponseSender(self._answering())

    def _answering(self) -> Exchange:
        if self._exchange is None:
            self._exchange = Exchange(self._request(), self._owner.decoupled)
        return self._exchange

    def _rare(self) -> tuple | None:
        return self.request_id(), self.correlation_id(), self.flags(), self.timeout(), self.parameters(), None

    def _respond(self, response: InferenceResponse) -> None:
        """Answers with the response that execute returned; one that cannot be sent fails only this request."""
        if self._exchange is not None:
            self._exchange.send(response, RESPONSE_COMPLETE_FINAL)
            return
        self._done = True
        try:
            response._deliver(self._batch, self._index)
        except ValueError as error:
            self._batch.fail_one(self._index, str(error))

    def _answered(self) -> bool:
        return self._done or (self._exchange is not None and self._exchange.complete())

    def _fail(self, message: str) -> None:
        """Ends the request with an error, unless it is complete."""
        if not self._done:
            self._answering().fail(message)
