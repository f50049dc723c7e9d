"""The names that handlers of TorchServe import."""

__version__ = "0.12.0"
