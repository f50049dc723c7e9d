"""The units of metrics."""


class Units:
    """The names of units."""

    def __init__(self):
        self.units = {
            "ms": "Milliseconds",
            "s": "Seconds",
            "percent": "Percent",
            "count": "Count",
            "MB": "Megabytes",
            "GB": "Gigabytes",
            "kB": "Kilobytes",
            "B": "Bytes",
            None: "unit",
            "": "unit",
        }
