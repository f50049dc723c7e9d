"""Answers of TorchServe's handlers that are sent in parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal._archive_rows import MORE, Asked, Failed, unpacked


def execute(handler: Any, batch: Any) -> None:
    """Answer a batch with one call of the handler, which may send parts of the answers before it returns."""
    requests = [r for r in batch.requests for _ in range(r.rows)]
    asked = [handler.parse(raw) for r in batch.requests for raw in r.input("data").reshape(-1).tolist()]
    context = handler.context
    context.begin(asked)
    context.cl_socket = _Sender(handler, requests, asked)
    answers = [a if q.packed else unpacked(a) for a, q in zip(handler.answers(asked), asked)]
    at = 0
    for request in batch.requests:
        own = answers[at : at + request.rows]
        at += request.rows
        fault = next((a for a in own if isinstance(a, Failed)), None)
        if fault is not None:
            request.fail(fault.text, fault.code, final=True)
        else:
            request.respond([("data", _column(own))], final=True)
    handler.flush_metrics()


class _Sender:
    """Sends parts of a streaming answer; handlers know it as context.cl_socket."""

    def __init__(self, handler: Any, requests: list[Any], asked: list[Asked]):
        self._handler, self._requests, self._asked = handler, requests, asked

    def send(self, values: list[Any]) -> None:
        """Send one part of each request's answer."""
        h = self._handler
        for i, (request, value) in enumerate(zip(self._requests, values)):
            h.context.request_processor[i].add_response_property("ts_stream_next", "true")
            answer: Any = h.pack(i, value, MORE)
            if not self._asked[i].packed:
                answer = unpacked(answer)
                if isinstance(answer, Failed):
                    continue
            request.respond([("data", _column([answer]))])


def _column(values: list[Any]) -> np.ndarray:
    """The values as rows of one element."""
    out = np.empty((len(values), 1), np.object_)
    out[:, 0] = values
    return out
