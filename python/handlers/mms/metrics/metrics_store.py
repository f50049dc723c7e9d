"""The metrics of a batch."""

from mms.metrics.dimension import Dimension
from mms.metrics.metric import Metric


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
