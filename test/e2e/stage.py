"""A server with models to batch, requests in flight on it, and eyes on what became of them.

The tests of batching send requests without waiting for the answers, see in the
metrics that they have arrived, and only then send the next: so they know the order
of arrival without sleeping. What they count, they count from the beginning of the
test on.

Some things must happen while an instance is busy, or within a queue delay. A machine
that is too slow for that makes a test TooSlow, and a patient test is then tried again:
a server that is late by design is late every time. The last tries are on a server whose
models take SLOWER times as long, so that there is more time to act while one is busy.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import queue
import re
import threading
import time
from collections.abc import Callable
from concurrent import futures

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import clients
import models
import server

PROTOCOLS = ("http", "grpc", "aio", "stream")
TRIES = 4
SLOWER = 3


class TooSlow(AssertionError):
    """The machine did not do in time what the test is built on, or the server is late."""


def patient(test):
    """Tries a test again when it was TooSlow."""

    @functools.wraps(test)
    def run(stage: Stage, **args):
        for n in range(1, TRIES):
            try:
                return test(stage=stage, **args)
            except TooSlow:
                stage = stage.slower() if n == TRIES // 2 else stage
                stage.begin()
        return test(stage=stage, **args)

    return run


def assert_within(low: float, seconds: float, high: float) -> None:
    """Asserts that something took so long: never less, and on some try not more."""
    assert seconds >= low
    if seconds >= high:
        raise TooSlow(f"it took {seconds:.3f} s, want less than {high:.3f}")


def assert_before(call: futures.Future) -> None:
    """Asserts that we are here before the call is answered."""
    if call.done():
        raise TooSlow("the call was answered before")


def batching(*lines: str) -> str:
    """The dynamic_batching message of a configuration."""
    return f"dynamic_batching {{ {' '.join(lines)} }}\n"


def policy(**fields: object) -> str:
    """A default_queue_policy of the given fields."""
    inside = " ".join(f"{name}: {value}" for name, value in fields.items())
    return f"default_queue_policy {{ {inside} }}"


def echo(name: str, *lines: str, delay_ms: int = 0, count: int = 1, rows: int = 8, **more) -> models.Model:
    """The built-in identity backend with dynamic batching, sleeping in every execution; lines configure the batcher."""
    return models.with_extra(models.slow(name, delay_ms, count, max_batch_size=rows, **more), batching(*lines))


def row(*values: float) -> np.ndarray:
    """One row of numbers."""
    return np.array([values], np.float32)


def rows(count: int, value: float = 1) -> np.ndarray:
    """So many rows of one number each."""
    return np.full((count, 1), value, np.float32)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a request."""

    array: np.ndarray | None
    error: InferenceServerException | None
    seconds: float  # from just before it was sent
    ended: float  # on the monotonic clock

    @property
    def code(self) -> str:
        """The status of an error, in the protocol's own terms."""
        assert self.error is not None, f"it was answered well, after {self.seconds} s"
        return str(self.error.status())


class Stage:
    """One running server, clients of all kinds, and its statistics."""

    def __init__(self, running: server.Server, slower: Callable[[], Stage] | None = None):
        self.server = running
        self._start_slower = slower
        self.http, self.grpc, self.metrics = running.http, running.grpc, running.metrics
        self._pool = futures.ThreadPoolExecutor(64)
        self._client = tritonclient.grpc.InferenceServerClient(self.grpc)
        assert self._client.is_server_live()  # so that the first test does not pay for the connection
        self._calls: list[futures.Future] = []
        self._occupied: dict[str, futures.Future] = {}
        self._before: dict[str, tuple[dict, str]] = {}
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._client.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)
        self.loop.close()

    def slower(self) -> Stage:
        """The stage whose models take longer; this one where there is none."""
        return self._start_slower() if self._start_slower else self

    def begin(self) -> None:
        """Waits for what an earlier test left under way, and counts from here on."""
        futures.wait(self._calls, 10)
        self._calls.clear()
        self._occupied.clear()
        self._before.clear()

    # Sending.

    def send(self, model: str, array: np.ndarray, via: str = "grpc", **parameters) -> futures.Future[Outcome]:
        """Sends a request and returns at once; parameters are those of the client's infer."""
        self.watch(model)
        return self.submit(self._timed, getattr(self, "_" + via), model, array, parameters)

    def submit(self, act, *args: object) -> futures.Future:
        """Calls act on another thread."""
        call = self._pool.submit(act, *args)
        self._calls.append(call)
        return call

    def infer(self, model: str, array: np.ndarray, via: str = "grpc", **parameters) -> Outcome:
        """Sends a request and waits for its answer."""
        return self.send(model, array, via, **parameters).result(30)

    def queue(self, model: str, *arrays: np.ndarray, via: str = "grpc", **parameters) -> list[futures.Future[Outcome]]:
        """Sends requests one by one, each after the one before it is seen to wait."""
        before = self.pending(model)
        calls = []
        for i, array in enumerate(arrays):
            calls.append(self.send(model, array, via, **parameters))
            self.await_pending(model, before + i + 1)
        return calls

    def occupy(self, model: str, array: np.ndarray | None = None) -> futures.Future[Outcome]:
        """Waits until the model does nothing, sends a request and returns when an instance runs it."""
        self.await_pending(model, 0)
        self.await_busy(model, 0)
        call = self.send(model, row(0) if array is None else array)
        self.await_busy(model, 1, before=call)
        self._occupied[model] = call
        return call

    @staticmethod
    def _timed(act, model: str, array: np.ndarray, parameters: dict) -> Outcome:
        begin = time.monotonic()
        result = error = None
        try:
            result = act(model, array, parameters)
        except InferenceServerException as err:
            error = err
        ended = time.monotonic()
        return Outcome(None if result is None else result.as_numpy("OUTPUT0"), error, ended - begin, ended)

    def _http(self, model: str, array: np.ndarray, parameters: dict):
        # One client a call: the library's connections belong to one thread.
        with tritonclient.http.InferenceServerClient(self.http, network_timeout=60) as client:
            return client.infer(model, inputs(tritonclient.http, array), **parameters)

    def _grpc(self, model: str, array: np.ndarray, parameters: dict):
        return self._client.infer(model, inputs(tritonclient.grpc, array), **parameters)

    def _aio(self, model: str, array: np.ndarray, parameters: dict):
        async def run():
            async with tritonclient.grpc.aio.InferenceServerClient(self.grpc) as client:
                return await client.infer(model, inputs(tritonclient.grpc, array), **parameters)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(60)

    def _stream(self, model: str, array: np.ndarray, parameters: dict):
        answers: queue.Queue = queue.Queue()
        with tritonclient.grpc.InferenceServerClient(self.grpc) as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            client.async_stream_infer(model, inputs(tritonclient.grpc, array), **parameters)
            result, error = answers.get(timeout=60)
        if error is not None:
            raise error
        return result

    # Looking.

    def watch(self, model: str) -> None:
        """Notes where the model's counters stand, unless this test has done so before."""
        if model not in self._before:
            self._before[model] = (self.totals(model), self._metrics())

    def stats(self, model: str) -> dict:
        """The model's statistics since it is watched, which send begins."""
        return _difference(self.totals(model), self._before[model][0])

    def totals(self, model: str) -> dict:
        """The model's statistics since it was loaded; batch_stats by size."""
        stats = json.loads(server.get(self.http, f"/v2/models/{model}/stats").body)["model_stats"][0]
        stats["last_inference"] = str(stats["last_inference"])  # a time, from which nothing is subtracted
        stats["batch_stats"] = {b.pop("batch_size"): b for b in stats["batch_stats"]}
        return stats

    def batches(self, model: str) -> dict[int, int]:
        """How many executions there were, by their rows."""
        lines = self.stats(model)["batch_stats"].items()
        return {size: b["compute_infer"]["count"] for size, b in lines if b["compute_infer"]["count"]}

    def metric(self, name: str, model: str, **labels: str) -> float:
        """A metric as it stands."""
        return _value(self._metrics(), _series(name, model, labels))

    def grown(self, name: str, model: str, **labels: str) -> float:
        """By how much a counter has grown since the model is watched."""
        series = _series(name, model, labels)
        return _value(self._metrics(), series) - _value(self._before[model][1], series)

    def _metrics(self) -> str:
        return server.get(self.metrics, "/metrics").text

    def failures(self, model: str) -> dict[str, float]:
        """Failed requests by reason, those reasons that there were."""
        reasons = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
        counts = {r: self.grown("nv_inference_request_failure", model, reason=r) for r in reasons}
        return {reason: n for reason, n in counts.items() if n}

    def pending(self, model: str) -> int:
        return int(self.metric("nv_inference_pending_request_count", model))

    def await_pending(self, model: str, count: int, before: futures.Future | None = None) -> None:
        """Waits until so many requests wait. It must be before the given call, or the one that occupies the model, ends."""
        before = before or self._occupied.get(model)
        self._await(lambda: self.pending(model) == count, before, f"{count} requests for {model} that wait")

    def await_busy(self, model: str, count: int, before: futures.Future | None = None) -> None:
        """Waits until so many instances run, which must be before the given call ends."""
        self._await(lambda: self.metric("shoal_instances_busy", model) == count, before, f"{count} busy {model}")

    @staticmethod
    def _await(true, before: futures.Future | None, what: str) -> None:
        def seen() -> bool:
            over = before is not None and before.done()
            if true():
                return True
            if over:
                raise TooSlow(f"not seen in time: {what}")
            return False

        server.wait_until(seen, 20, what)


def _series(name: str, model: str, labels: dict[str, str]) -> str:
    pairs = sorted({"model": model, "version": "1", **labels}.items())
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in pairs) + "}"


def _value(metrics: str, series: str) -> float:
    found = re.search(f"^{re.escape(series)} (\\S+)$", metrics, re.MULTILINE)
    assert found, f"no metric {series}"
    return float(found.group(1))


def _difference(now, before):
    """What has been added to the numbers of a tree."""
    if isinstance(now, dict):
        return {key: _difference(value, before.get(key) if before else None) for key, value in now.items()}
    return now - (before or 0) if isinstance(now, int) else now


def inputs(library, array: np.ndarray) -> list:
    """INPUT0 for a client library."""
    return [clients.tensor(library, "INPUT0", np_to_triton_dtype(array.dtype), array)]


def good(*calls: futures.Future[Outcome]) -> list[Outcome]:
    """Waits for answers, all of which must be good."""
    outcomes = [c.result(30) for c in calls]
    for outcome in outcomes:
        assert outcome.error is None, outcome.error
    return outcomes


def values(*calls: futures.Future[Outcome]) -> list[float]:
    """The first number of each answer."""
    return [float(outcome.array.flat[0]) for outcome in good(*calls)]


def order(*calls: futures.Future[Outcome]) -> list[int]:
    """The places of the calls, in the order in which they were answered."""
    outcomes = good(*calls)
    return sorted(range(len(outcomes)), key=lambda i: outcomes[i].ended)
