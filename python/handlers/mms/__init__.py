"""The names that handlers of Multi Model Server import."""

__version__ = "1.1.11"
