"""The metrics of a batch."""

from shoal._archive_metrics import TorchMetricsStore as MetricsStore

__all__ = ["MetricsStore"]
