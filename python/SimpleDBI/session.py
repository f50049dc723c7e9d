"""Session and Run, with SimpleDBI's arguments, over Shoal's sessions."""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import os
import time
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from shoal import SessionError
from shoal import Session as _Session
from shoal._session import VARIABLE
from SimpleDBI import _models, _server

EMPTY_ON_ERROR = False
"""Whether forward returns an empty tuple for a call that failed, as SimpleDBI did, rather than raising."""

_WAIT = 0.01  # the longest that a batch waits to be full, in seconds, if the session does not say
_REPORT = 0.1  # how often a session puts its metrics on the queue, in seconds

_metrics: Any = None  # the queue of this worker


class Session:
    """A model, by its name: the first session of a name creates it, and later ones use it as it is."""

    def __init__(self, name: str, path: str, input_info: Sequence[Mapping[str, Any]], output_info: Sequence[Mapping[str, Any]],
                 dynamic_batch: bool = True, duplicate_num: int = 1, model_type: str = "torch", max_batch_size: int = 32,
                 metric: bool = False, timeout: float | None = None):  # fmt: skip
        """Timeout is the longest that a batch waits to be full, in seconds; without one it is 10 ms. It never waits for callers
        that there are not: a lone caller has its answer at once."""
        if model_type not in _models.TYPES:
            raise ValueError(f"model_type is {model_type!r}; want one of {', '.join(_models.TYPES)}")
        if VARIABLE not in os.environ:
            raise RuntimeError(f"a Session is made in a function that Run runs, or for a running server that ${VARIABLE} names")
        self.name = name
        self._inputs = [(i["name"], tuple(i["max_shape"]), np.dtype(i["dtype"])) for i in input_info]
        self._names = [i["name"] for i in input_info]
        self._last: list[tuple[np.dtype, tuple[int, ...]]] = []  # of the arrays of the last call
        self._outputs = [o["name"] for o in output_info]
        self._max_batch_size = max_batch_size
        folder = os.environ.get(_server.FOLDER)
        if folder:
            _server.create(folder, {
                "name": name, "path": os.path.abspath(path), "model_type": model_type, "dynamic_batch": bool(dynamic_batch),
                "duplicate_num": duplicate_num, "max_batch_size": max_batch_size, "timeout": _WAIT if timeout is None else timeout,
                "inputs": [_described(i) for i in input_info], "outputs": [_described(o) for o in output_info],
            })  # fmt: skip
        self._session = _Session(name)
        self._calls = self._rows = self._errors = self._oversized = 0
        self._cost = 0.0
        self._reported = time.monotonic()
        if _metrics is not None:
            multiprocessing.util.Finalize(None, self._report, exitpriority=100)  # before the queue's own

    def forward(self, *arrays: np.ndarray) -> Any:
        """Runs the model on arrays of rows, one for each input: the output's array, or a tuple of them."""
        begin = time.monotonic()
        try:
            given = self._given(arrays)
            found = self._session.run(given, copy=True)
        except Exception as error:
            self._errors += 1
            self._report()
            if EMPTY_ON_ERROR and isinstance(error, SessionError):
                return ()
            raise
        if _metrics is not None:
            now = time.monotonic()
            self._calls, self._rows, self._cost = self._calls + 1, self._rows + len(arrays[0]), self._cost + now - begin
            if now - self._reported > _REPORT:
                self._report()
        if not isinstance(found, dict):
            return found
        return tuple(found[n] for n in self._outputs)

    def _given(self, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """The arrays by the names of their inputs. Those that are like the last ones need no check."""
        if self._last and len(arrays) == len(self._last):
            for a, (dtype, shape) in zip(arrays, self._last):
                if type(a) is not np.ndarray or a.dtype != dtype or a.shape != shape:
                    break
            else:
                return dict(zip(self._names, arrays))
        self._check(arrays)
        checked = [np.asarray(a, i[2]) for i, a in zip(self._inputs, arrays)]
        self._last = [(a.dtype, a.shape) for a in checked]
        return dict(zip(self._names, checked))

    def _check(self, arrays: Sequence[np.ndarray]) -> None:
        if len(arrays) != len(self._inputs):
            raise ValueError(f"model {self.name!r} has {len(self._inputs)} inputs, got {len(arrays)} arrays")
        rows = len(arrays[0])
        if rows > self._max_batch_size:
            self._oversized += 1
            raise ValueError(f"model {self.name!r}: {rows} rows, and max_batch_size is {self._max_batch_size}")
        for (name, most, _), array in zip(self._inputs, arrays):
            shape = np.shape(array)
            if len(shape) != len(most) or any(d > m for d, m in zip(shape, most)):
                raise ValueError(f"model {self.name!r}: input {name!r} has shape {list(shape)}, and max_shape is {list(most)}")

    def _report(self) -> None:
        """Puts what has happened since the last time on the metric queue: the mean time of calls, and the number of rows."""
        self._reported = time.monotonic()
        if _metrics is None:
            return
        if self._calls and _server.offer(_metrics, self.name, {"forward_cost": self._cost / self._calls, "request_counter": self._rows}):
            self._calls = self._rows = 0
            self._cost = 0.0
        if self._errors and _server.offer(_metrics, self.name, {"request_handler_error_counter": self._errors}):
            self._errors = 0
        if self._oversized and _server.offer(_metrics, self.name, {"batchsize_error_counter": self._oversized}):
            self._oversized = 0


def _described(info: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": info["name"], "dtype": np.dtype(info["dtype"]).name, "shape": [int(d) for d in info["max_shape"]]}


def _work(target: Callable[..., Any], environment: dict[str, str], metrics: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    global _metrics
    os.environ.update(environment)
    _metrics = metrics
    target(*args, **kwargs)


def Run(target: Callable[..., Any], worker_num: int, metric_queue: Any = None, args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None) -> None:  # fmt: skip
    """Runs target in worker_num processes, whose Sessions share a server, and returns when all have ended. The server is a
    private one, unless $SHOAL_SESSION_SOCKET names a running one. Raises RuntimeError if a worker failed."""
    private = None if VARIABLE in os.environ else _server.Private()
    watcher = None
    try:
        environment = {}
        if private is not None:
            environment = {VARIABLE: private.socket, _server.FOLDER: private.folder}
            if metric_queue is not None:
                watcher = _server.Watcher(private.folder, metric_queue)
        workers = [
            multiprocessing.Process(target=_work, args=(target, environment, metric_queue, args, kwargs or {})) for _ in range(worker_num)
        ]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
    finally:
        if watcher is not None:
            watcher.stop()
        if private is not None:
            private.stop()
    failed = {i: w.exitcode for i, w in enumerate(workers) if w.exitcode != 0}
    if failed:
        raise RuntimeError(f"{len(failed)} of {worker_num} workers failed; exit codes by worker: {failed}")
