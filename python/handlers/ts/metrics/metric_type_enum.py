"""The types of metrics."""

import enum


class MetricTypes(enum.Enum):
    """How the values of a metric are combined."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
