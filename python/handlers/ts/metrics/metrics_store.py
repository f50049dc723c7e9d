"""The metrics of a batch."""

from mms.metrics import metrics_store as _base
from mms.metrics.dimension import Dimension
from ts.metrics.metric_type_enum import MetricTypes


class MetricsStore(_base.MetricsStore):
    """The metrics of TorchServe: those of Multi Model Server, and metrics with named dimensions."""

    _declared = {}  # for a worker's whole life

    def _add_or_update(self, name, value, req_id, unit, method=None, dimensions=None):
        super()._add_or_update(name, value, req_id if req_id is not None else "", unit, method, dimensions)

    def add_metric_to_cache(self, metric_name, unit, dimension_names=None, metric_type=MetricTypes.COUNTER):
        """Declare a metric."""
        held = CachedMetric(metric_name, unit, dimension_names or [], metric_type)
        self._declared[(metric_name, metric_type)] = held
        held.store = self
        return held

    def get_metric(self, metric_name, metric_type=MetricTypes.COUNTER):
        """A metric that was declared."""
        held = self._declared.get((metric_name, metric_type))
        if held is None:
            raise KeyError(f"metric {metric_name} of type {metric_type} was not added to the cache")
        held.store = self
        return held


class CachedMetric:
    """A declared metric."""

    def __init__(self, metric_name, unit, dimension_names, metric_type):
        self.metric_name, self.unit, self.dimension_names, self.metric_type = metric_name, unit, list(dimension_names), metric_type
        self.store = None

    def add_or_update(self, value, dimension_values=(), request_id=""):
        """Add a value."""
        names = [n for n in self.dimension_names if n not in ("ModelName", "Level")]
        dims = [Dimension(n, v) for n, v in zip(names, dimension_values)]
        method = "counter" if self.metric_type is MetricTypes.COUNTER else None
        self.store._add_or_update(self.metric_name, value, request_id, self.unit, method, dims)

    update = add_or_update
