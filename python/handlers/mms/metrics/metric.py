"""One value of a metric."""

import socket
import time

from mms.metrics.unit import Units

_UNITS = Units().units
_HOST = socket.gethostname()


class Metric:
    """A metric's name, value, unit and dimensions."""

    def __init__(self, name, value, unit, dimensions, request_id=None, metric_method=None):
        self.name = name
        self.value = value
        self.unit = _UNITS.get(unit, unit)
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
