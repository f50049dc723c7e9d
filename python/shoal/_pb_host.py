"""Logger, MetricFamily and Metric of triton_python_backend_utils: what a model tells the server."""

from __future__ import annotations

import enum
import json
import math
import sys
import weakref
from typing import Any

from shoal._pb_tensor import TritonModelException


def _server():
    from shoal import _worker  # not at the top: the worker imports the handlers

    return _worker


class LogLevel(enum.IntEnum):
    """The level of a log line."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


_LEVELS = {LogLevel.INFO: "info", LogLevel.WARNING: "warn", LogLevel.ERROR: "error", LogLevel.VERBOSE: "verbose"}


def _log(level: str, message: str) -> None:
    if not isinstance(message, str):
        raise TypeError(f"the log takes a str, got {type(message).__name__}")
    _server().log(level, message)


class Logger:
    """Writes to the server's log, with the model's name."""

    LogLevel = LogLevel
    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    @staticmethod
    def log(message: str, level: LogLevel = LogLevel.INFO) -> None:
        """Writes a line of that level."""
        if not isinstance(level, LogLevel):
            raise TypeError(f"log wants a LogLevel such as Logger.INFO, got {level!r}")
        _log(_LEVELS[level], message)

    @staticmethod
    def log_info(message: str) -> None:
        """Writes a line about a change of state."""
        _log("info", message)

    @staticmethod
    def log_warn(message: str) -> None:
        """Writes a warning."""
        _log("warn", message)

    @staticmethod
    def log_error(message: str) -> None:
        """Writes an error."""
        _log("error", message)

    @staticmethod
    def log_verbose(message: str) -> None:
        """Writes a detail, which shows when the server's log is verbose."""
        _log("verbose", message)


class MetricKind(enum.IntEnum):
    """The kind of a metric."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


# What a kind takes.
_ACTS = {
    MetricKind.COUNTER: ("declare", "increment", "value"),
    MetricKind.GAUGE: ("declare", "increment", "set", "value"),
    MetricKind.HISTOGRAM: ("declare", "observe"),
}


_DELETED = (
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should be "
    "deleted AFTER its corresponding 'Metric' objects have been deleted."
)


class Metric:
    """One labelled value of a family, for as long as the family is there. MetricFamily.Metric makes them.

    The server has counted when a method returns: who asks it then sees the new value.
    """

    def __init__(self, family: MetricFamily, labels: dict[str, str], buckets: list[float] | None):
        self._family = weakref.ref(family)
        self._labels = labels
        self._buckets = buckets
        family._declare(labels, buckets)

    def increment(self, value: float) -> None:
        """Adds to a counter or gauge; a counter refuses negative values."""
        self._apply("increment", "Failed to increment metric value: ", value)

    def set(self, value: float) -> None:
        """Sets a gauge."""
        self._apply("set", "Failed to set metric value: ", value)

    def observe(self, value: float) -> None:
        """Counts a value into a histogram."""
        self._apply("observe", "Failed to observe metric value: ", value)

    def value(self) -> float:
        """The server's value of a counter or gauge, which other instances may have changed too."""
        return float(self._apply("value", "Failed to get metric value: "))

    def _apply(self, act: str, failed: str, value: float = 0.0) -> Any:
        family = self._family()
        if family is None:
            raise TritonModelException(failed + _DELETED)
        if act not in _ACTS[family._kind]:
            raise TritonModelException(f"{failed}TRITONSERVER_METRIC_KIND_{family._kind.name} does not support {act.capitalize()}")
        if not math.isfinite(value):
            raise TritonModelException(f"{failed}the value is {value}, want a number")
        return family._apply(act, failed, self._labels, self._buckets, float(value))


class MetricFamily:
    """Metrics of one name, which the server shows under /metrics."""

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    _declared: dict[tuple, dict[str, str]] | None = None  # metrics by their labels, once the family is announced

    def __init__(self, name: str, description: str, kind: MetricKind):
        if not isinstance(kind, MetricKind):
            raise TypeError(f"MetricFamily wants a kind such as MetricFamily.COUNTER, got {kind!r}")
        self._name = name
        self._help = description
        self._kind = kind
        self._apply("family", "Error when creating MetricFamily: ", {}, None, 0.0)
        self._declared = {}

    def __del__(self):
        # Its metrics are deleted with it, unless there is another family of the
        # name. When a worker ends everything stays: the next one goes on counting.
        if self._declared is None or sys.is_finalizing():
            return
        try:
            for labels in self._declared.values():
                _server().metric_gone("forget", self._name, self._kind.name.lower(), labels)
            _server().metric_gone("leave", self._name, self._kind.name.lower(), {})
        except Exception:  # the server is gone
            pass

    def _declare(self, labels: dict[str, str], buckets: list[float] | None) -> None:
        key = tuple(sorted(labels.items()))
        if self._declared is not None and key not in self._declared:
            self._apply("declare", "Error when creating Metric: ", labels, buckets, 0.0)
            self._declared[key] = labels

    def _apply(self, act: str, failed: str, labels: dict[str, str], buckets: list[float] | None, value: float) -> Any:
        try:
            return _server().metric(act, self._name, self._kind.name.lower(), self._help, labels, buckets, value)
        except (ValueError, RuntimeError) as error:
            raise TritonModelException(failed + str(error)) from None

    def Metric(self, labels: dict[str, str] | None = None, buckets: list[float] | None = None) -> Metric:
        """A metric of the family; a histogram needs the upper bounds of its buckets."""
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        if buckets is not None and not isinstance(buckets, list):
            raise TritonModelException("Failed to create metric. Buckets must be a list.")
        if buckets is not None and self._kind != MetricKind.HISTOGRAM:
            raise TritonModelException("Failed to create metric. Unexpected buckets found.")
        if buckets is None and self._kind == MetricKind.HISTOGRAM:
            raise TritonModelException("Failed to create metric. Missing required buckets.")
        return Metric(self, {k: _label(v) for k, v in (labels or {}).items()}, buckets)


def _label(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
