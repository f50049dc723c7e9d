"""A name and a value that tell metrics apart."""


class Dimension:
    """One dimension of a metric."""

    def __init__(self, name, value):
        self.name = name
        self.value = value

    def __str__(self):
        return f"{self.name}:{self.value}"

    def to_dict(self):
        """As a dictionary."""
        return {"Name": self.name, "Value": self.value}
