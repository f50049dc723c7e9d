"""The metrics of a batch."""

from shoal._archive_metrics import MetricsStore

__all__ = ["MetricsStore"]
