"""The version that handlers see."""

__version__ = "0.12.0"
