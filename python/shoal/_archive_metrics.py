"""Metrics that handlers count, collected until their batch is answered.

They are ours even where the original servers' Python packages are installed: those write to their own servers.
"""

import socket
import time

UNITS = {
    "ms": "Milliseconds",
    "s": "Seconds",
    "percent": "Percent",
    "count": "Count",
    "MB": "Megabytes",
    "GB": "Gigabytes",
    "kB": "Kilobytes",
    "B": "Bytes",
    None: "unit",
    "": "unit",
}
_HOST = socket.gethostname()


class Dimension:
    """One dimension of a metric."""

    def __init__(self, name, value):
        self.name = name
        self.value = value

    def __str__(self):
        return f"{self.name}:{self.value}"

    def to_dict(self):
        """As a dictionary."""
        return {"Name": self.name, "Value": self.value}


class Metric:
    """A metric's name, value, unit and dimensions."""

    def __init__(self, name, value, unit, dimensions, request_id=None, metric_method=None):
        self.name = name
        self.value = value
        self.unit = UNITS.get(unit, unit)
        self._given_unit = unit
        self.dimensions = list(dimensions)
        self.request_id = request_id
        self.metric_method = metric_method
        self.timestamp = int(time.time())

    def update(self, value):
        """Add to a counter, or replace another value."""
        self.value = self.value + value if self.metric_method == "counter" else value

    def __str__(self):
        dims = ",".join(str(d) for d in self.dimensions)
        text = f"{self.name}.{self.unit}:{self.value}|#{dims}|#hostname:{_HOST},{self.timestamp}"
        return text + (f",{self.request_id}" if self.request_id else "")

    def to_dict(self):
        """As a dictionary."""
        return {
            "MetricName": self.name,
            "Value": self.value,
            "Unit": self.unit,
            "Dimensions": [d.to_dict() for d in self.dimensions],
            "Timestamp": self.timestamp,
            "HostName": _HOST,
            "RequestId": self.request_id,
        }

    def line(self, torch):
        """The line of the metrics log."""
        dims = ",".join(str(d) for d in self.dimensions)
        unit = self._given_unit if torch and self._given_unit == "ms" else self.unit
        ids = f"requestID:{self.request_id}," if self.request_id else ""
        return f"{self.name}.{unit}:{self.value}|#{dims}|#hostname:{_HOST},{ids}timestamp:{self.timestamp}"


class MetricsStore:
    """Collects metrics until the batch is answered."""

    def __init__(self, request_ids, model_name):
        self.store = []
        self._cache = {}
        self.request_ids = request_ids
        self.model_name = model_name

    def _add_or_update(self, name, value, req_id, unit, method=None, dimensions=None):
        dims = list(dimensions or ())
        dims.append(Dimension("ModelName", self.model_name))
        dims.append(Dimension("Level", "Model" if req_id is not None else "Error"))
        key = "-".join([name, unit or "", str(req_id)] + [str(d) for d in dims])
        held = self._cache.get(key)
        if held is not None:
            held.update(value)
            return
        held = self._cache[key] = Metric(name, value, unit, dims, req_id, method)
        self.store.append(held)

    def _req(self, idx):
        if self.request_ids is None:
            return None
        if idx is not None:
            return self.request_ids[idx]
        return ",".join(self.request_ids.values())

    def add_counter(self, name, value, idx=None, dimensions=None):
        """Count."""
        self._add_or_update(name, value, self._req(idx), "count", "counter", dimensions)

    def add_time(self, name, value, idx=None, unit="ms", dimensions=None):
        """Add a duration, in ms or s."""
        if unit not in ("ms", "s"):
            raise ValueError("the unit for a timed metric should be one of ['ms', 's']")
        self._add_or_update(name, value, self._req(idx), unit, None, dimensions)

    def add_size(self, name, value, idx=None, unit="MB", dimensions=None):
        """Add a size, in MB, kB, GB or B."""
        if unit not in ("MB", "kB", "GB", "B"):
            raise ValueError("The unit for size based metric is one of ['MB','kB', 'GB', 'B']")
        self._add_or_update(name, value, self._req(idx), unit, None, dimensions)

    def add_percent(self, name, value, idx=None, dimensions=None):
        """Add a percentage."""
        self._add_or_update(name, value, self._req(idx), "percent", None, dimensions)

    def add_error(self, name, value, dimensions=None):
        """Add an error."""
        self._add_or_update(name, value, None, "", None, dimensions)

    def add_metric(self, name, value, idx=None, unit=None, dimensions=None):
        """Add a value of any unit."""
        self._add_or_update(name, value, self._req(idx), unit, None, dimensions)


class TorchMetricsStore(MetricsStore):
    """The metrics of TorchServe: those of Multi Model Server, and metrics with named dimensions."""

    _declared = {}  # for a worker's whole life

    def _add_or_update(self, name, value, req_id, unit, method=None, dimensions=None):
        super()._add_or_update(name, value, req_id if req_id is not None else "", unit, method, dimensions)

    def add_metric_to_cache(self, metric_name, unit, dimension_names=None, metric_type="counter"):
        """Declare a metric."""
        held = CachedMetric(metric_name, unit, dimension_names or [], metric_type)
        self._declared[(metric_name, _word(metric_type))] = held
        held.store = self
        return held

    def get_metric(self, metric_name, metric_type="counter"):
        """A metric that was declared."""
        held = self._declared.get((metric_name, _word(metric_type)))
        if held is None:
            raise KeyError(f"metric {metric_name} of type {metric_type} was not added to the cache")
        held.store = self
        return held


def _word(metric_type):
    """The word for a type of metrics, which is one of an enum that may be the original's."""
    return str(getattr(metric_type, "value", metric_type)).lower()


class CachedMetric:
    """A declared metric."""

    def __init__(self, metric_name, unit, dimension_names, metric_type):
        self.metric_name, self.unit, self.dimension_names, self.metric_type = metric_name, unit, list(dimension_names), metric_type
        self.store = None

    def add_or_update(self, value, dimension_values=(), request_id=""):
        """Add a value."""
        names = [n for n in self.dimension_names if n not in ("ModelName", "Level")]
        dims = [Dimension(n, v) for n, v in zip(names, dimension_values)]
        method = "counter" if _word(self.metric_type) == "counter" else None
        self.store._add_or_update(self.metric_name, value, request_id, self.unit, method, dims)

    update = add_or_update
