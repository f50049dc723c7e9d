"""A batch as the worker hands it to a handler, without a server."""

from __future__ import annotations

import sys
import types

import numpy as np


class Request:
    """Records how it is answered."""

    def __init__(self, inputs, wanted=("Y", "Z"), id="", parameters=None, rows=1, types=None):
        self._inputs = inputs
        self._types = types or {}
        self.wanted = list(wanted)
        self.id = id
        self.parameters = parameters or {}
        self.rows = rows
        self.correlation_id = 0
        self.flags = 0
        self.priority = 0
        self.timeout = 0
        self.input_names = tuple(inputs)
        self.answers: list = []
        self.error: tuple[str, str] | None = None
        self.finished = False
        self.gone = False

    def input(self, name):
        return self._inputs[name]

    def inputs(self):
        return dict(self._inputs)

    def parts(self, make):
        return [make(n, self._inputs[n], self.datatype(n)) for n in self.input_names]

    def datatype(self, name):
        from shoal import _dtypes

        return self._types.get(name) or _dtypes.of_numpy(self._inputs[name].dtype)

    def respond(self, outputs, parameters=None, final=False):
        assert not self.finished, "respond after finish"
        self.answers.append(({name: array for name, array, _ in outputs}, parameters, {n: t for n, _, t in outputs}))
        self.finished = final

    def fail(self, message, code="INTERNAL", final=False):
        assert self.error is None, f"failed twice: {self.error} and {message}"
        self.error = (message, code)
        self.finished = final

    def finish(self):
        self.finished = True

    def cancelled(self):
        return self.gone


class Batch:
    """Requests that run together; inputs of equal shape lie in one array."""

    def __init__(self, *requests):
        self.requests = list(requests)
        self.rows = sum(r.rows for r in requests)
        self.size = len(requests)
        self.whole = None

    def request(self, i):
        return self.requests[i]

    def parts(self, i, make):
        return self.requests[i].parts(make)

    def stacked(self, names):
        arrays = [self.inputs().get(n) for n in names]
        if any(not isinstance(a, np.ndarray) or a.dtype == object for a in arrays):
            return None
        return arrays

    def inputs(self):
        names = {n for r in self.requests for n in r.input_names}
        return {n: self._column([r._inputs.get(n) for r in self.requests]) for n in names}

    def input(self, name):
        return self.inputs()[name]

    @staticmethod
    def _column(parts):
        if any(p is None for p in parts) or len({p.shape[1:] for p in parts}) > 1:
            return parts
        return np.concatenate(parts)

    def respond(self, outputs, parameters=None):
        self.whole = {name: array for name, array, _ in outputs}

    def answer(self, i, outputs, parameters=None, strict=True):
        request = self.requests[i]
        request.respond([o for o in outputs if o[0] in request.wanted], parameters, final=True)

    def fail_one(self, i, message, code="INTERNAL"):
        self.requests[i].fail(message, code)

    def fail(self, message, code="INTERNAL"):
        for r in self.requests:
            if not r.answers and r.error is None:
                r.fail(message, code)


def worker(monkeypatch):
    """Puts a worker in place that keeps log lines and metrics; returns it."""
    import shoal
    from shoal import _faults

    monkeypatch.setattr(_faults, "_repeats", _faults.Repeats())  # each test is a new worker
    fake = types.ModuleType("shoal._worker")
    fake.lines = []
    fake.metrics = []
    fake.log = lambda level, text: fake.lines.append((level, text))
    fake.metric = lambda *args: fake.metrics.append(args)
    fake.gone = []
    fake.metric_gone = lambda *args: fake.gone.append(args)
    fake.calls = lambda: None
    monkeypatch.setitem(sys.modules, "shoal._worker", fake)
    monkeypatch.setattr(shoal, "_worker", fake, raising=False)
    return fake
