"""What a handler sees of its server: the context, and metrics."""

from __future__ import annotations

import importlib
from typing import Any

from shoal import _archive_metrics


def new(told: dict[str, Any], manifest: Any, gpu: Any) -> Any:
    """The context of a worker's whole life."""
    torch = told["dialect"] == "torchserve"
    module = _module(torch, "context")
    kwargs = {"limit_max_image_pixels": told.get("limit_max_image_pixels", True)} if torch else {}
    store = _archive_metrics.TorchMetricsStore if torch else _archive_metrics.MetricsStore
    context = _lazy(module, store)(
        told["model_name"], told["model_dir"], manifest, told["batch_size"], gpu, told["server_version"], **kwargs
    )
    context.model_yaml_config = (told.get("model_config") or {}) if torch else {}
    for key in ("id", "start", "end"):
        setattr(context, f"header_key_sequence_{key}", f"ts_request_sequence_{key}")
    return context


def send_intermediate_predict_response(ret: Any, req_id_map: Any, message: Any, code: Any, context: Any = None) -> None:
    """Send one part of the answer of each request; what the handler returns is the last."""
    if context is None or getattr(context, "cl_socket", None) is None:
        raise RuntimeError("the model does not stream: its archive did not call send_intermediate_predict_response when it was registered")
    context.cl_socket.send(ret)


def send_parts_here() -> None:
    """Let handlers send parts of answers to our server, also where TorchServe's own package is installed."""
    for name in ("handler_utils.utils", "protocol.otf_message_handler"):
        _module(True, name).send_intermediate_predict_response = send_intermediate_predict_response


def _module(torch: bool, name: str) -> Any:
    return importlib.import_module(("ts." if torch else "mms.") + name)


def failure(torch: bool) -> Any:
    """The exception with a status."""
    return (_module(True, "utils.util") if torch else _module(False, "service")).PredictionException


def _lazy(module: Any, store: Any) -> Any:
    """The context's class, with the parts for a batch made when they are asked for: most handlers need none of them."""

    class Context(module.Context):  # type: ignore[misc]
        """What a handler knows about its model, its requests and their answers."""

        _asked = None

        def begin(self, asked: list[Any]) -> None:
            """Prepare for the requests of a batch."""
            self._asked = asked
            self._ids = self._processors = self._metrics = None

        @property
        def untouched(self) -> bool:
            """Whether nobody can have set an answer's status or headers."""
            return self._processors is None

        @property
        def request_ids(self) -> Any:
            if self._ids is None and self._asked is not None:
                self._ids = {i: a.id for i, a in enumerate(self._asked)}
            return self._ids

        @request_ids.setter
        def request_ids(self, ids: Any) -> None:
            self._ids = ids

        @property
        def request_processor(self) -> Any:
            if self._processors is None:
                self._processors = [Processor(a) for a in self._asked or ()]
            return self._processors

        @request_processor.setter
        def request_processor(self, processors: Any) -> None:
            self._processors = processors

        # The originals' own package, where it is installed, reads this attribute.
        _request_processor = request_processor

        @property
        def metrics(self) -> Any:
            if self._metrics is None:
                self._metrics = store(self.request_ids, self.model_name)
            return self._metrics

        @metrics.setter
        def metrics(self, metrics: Any) -> None:
            self._metrics = metrics

    class Processor(module.RequestProcessor):  # type: ignore[misc]
        """One request, whose headers are read when they are asked for."""

        def __init__(self, asked: Any):
            self._asked = asked
            self._status_code, self._reason_phrase, self._response_header = 200, None, {}

        @property
        def _request_header(self) -> Any:
            return self._asked.headers

    return Context
