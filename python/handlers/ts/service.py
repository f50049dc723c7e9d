"""Errors that a handler raises."""

from mms.service import PredictionException

__all__ = ["PredictionException"]
