"""Streaming answers."""

from shoal._archive_context import send_intermediate_predict_response

__all__ = ["send_intermediate_predict_response"]
