"""The units of metrics."""

from shoal._archive_metrics import UNITS


class Units:
    """The names of units."""

    def __init__(self):
        self.units = dict(UNITS)
