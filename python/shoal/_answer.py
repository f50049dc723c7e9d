"""Answers to single requests, as they lie in the table of a result. It needs no numpy."""

import struct

ALL = 0xFFFFFFFF  # in place of a request's number: an answer for all of the batch
MAX_TEXT = 1 << 16  # bytes of an error's text

# Error codes by the names that Triton gives them; the numbers are the server's.
CODES = {
    "UNKNOWN": 0, "INTERNAL": 1, "NOT_FOUND": 2, "INVALID_ARG": 3, "UNAVAILABLE": 4,
    "UNSUPPORTED": 5, "ALREADY_EXISTS": 6, "CANCELLED": 7,
}

ANSWER = struct.Struct("<IBBHII")  # request, kind, code, outputs, parameters or bytes of text, reserved


def pack_error(i, message, code):
    """Pack the answer that request i has failed."""
    text = str(message).encode("utf-8", "replace")[:MAX_TEXT]
    return ANSWER.pack(i, 1, CODES.get(code, CODES["INTERNAL"]), 0, len(text), 0) + text
