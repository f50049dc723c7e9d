"""What a handler sees of its server: the context, and metrics."""

from __future__ import annotations

import importlib
from typing import Any


def new(told: dict[str, Any], manifest: Any, gpu: Any) -> Any:
    """The context of a worker's whole life."""
    torch = told["dialect"] == "torchserve"
    module = _module(torch, "context")
    kwargs = {"limit_max_image_pixels": told.get("limit_max_image_pixels", True)} if torch else {}
    context = _lazy(module, _module(torch, "metrics.metrics_store").MetricsStore)(
        told["model_name"], told["model_dir"], manifest, told["batch_size"], gpu, told["server_version"], **kwargs
    )
    context.model_yaml_config = (told.get("model_config") or {}) if torch else {}
    for key in ("id", "start", "end"):
        setattr(context, f"header_key_sequence_{key}", f"ts_request_sequence_{key}")
    return context


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
