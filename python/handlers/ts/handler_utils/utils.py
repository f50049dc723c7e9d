"""Streaming answers."""


def send_intermediate_predict_response(ret, req_id_map, message, code, context=None):
    """Send one part of the answer of each request; what the handler returns is the last."""
    if context is None or context.cl_socket is None:
        raise RuntimeError("the model does not stream: its archive did not call send_intermediate_predict_response when it was registered")
    context.cl_socket.send(ret)
