"""A name and a value that tell metrics apart."""

from shoal._archive_metrics import Dimension

__all__ = ["Dimension"]
