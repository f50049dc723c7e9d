"""The old place of send_intermediate_predict_response."""

from ts.handler_utils.utils import send_intermediate_predict_response

__all__ = ["send_intermediate_predict_response"]
