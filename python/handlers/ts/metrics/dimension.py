"""A name and a value that tell metrics apart."""

from mms.metrics.dimension import Dimension

__all__ = ["Dimension"]
