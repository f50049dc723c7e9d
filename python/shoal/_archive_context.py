"""What a handler sees of its server: the context, and metrics."""

from __future__ import annotations

import importlib
from typing import Any


def new(told: dict[str, Any], manifest: Any, gpu: Any) -> Any:
    """The context of a worker's whole life."""
    torch = told["dialect"] == "torchserve"
    module = importlib.import_module("ts.context" if torch else "mms.context")
    kwargs = {"limit_max_image_pixels": told.get("limit_max_image_pixels", True)} if torch else {}
    context = module.Context(
        told["model_name"], told["model_dir"], manifest, told["batch_size"], gpu, told["server_version"], **kwargs
    )
    context.model_yaml_config = _yaml(told) if torch else {}
    for key in ("id", "start", "end"):
        setattr(context, f"header_key_sequence_{key}", f"ts_request_sequence_{key}")
    return context


def _yaml(told: dict[str, Any]) -> dict[str, Any]:
    return told.get("model_config") or {}


def metrics_of(torch: bool) -> Any:
    """The function that makes the metrics of a batch."""
    store = importlib.import_module("ts.metrics.metrics_store" if torch else "mms.metrics.metrics_store")
    return lambda context: store.MetricsStore(context.request_ids, context.model_name)


def classes(torch: bool) -> tuple[Any, Any]:
    """The exception with a status, and the processor of one request."""
    if torch:
        return importlib.import_module("ts.utils.util").PredictionException, importlib.import_module("ts.context").RequestProcessor
    return importlib.import_module("mms.service").PredictionException, importlib.import_module("mms.context").RequestProcessor
