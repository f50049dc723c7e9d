"""One value of a metric."""

from shoal._archive_metrics import Metric

__all__ = ["Metric"]
