"""Callers that ask without pause, each question different, and check every answer."""

from __future__ import annotations

import asyncio
import collections
import queue
import threading
import time

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http

import clients

KINDS = ("http", "grpc", "aio", "stream")
WINDOW = 4  # requests that a stream has under way


class Question:
    """One request and the answer it must get. Its values come from its own number, so no two are alike."""

    def __init__(self, number: int):
        self.id = str(number)
        rng = np.random.default_rng(number)
        self.model = ("sums", "strings", "arithmetic")[number % 3]
        count = int(rng.integers(1, 4))
        if self.model == "sums":
            array = rng.integers(0, 1000, (count, int(rng.integers(1, 4)), int(rng.integers(1, 6)))).astype(np.float32)
            array[0, 0, 0] = number % 65536
            self.given, self.wire, self.want = [array], "FP32", array.sum(axis=2)
        elif self.model == "strings":
            shape = (count, int(rng.integers(1, 4)))
            a = np.array([rng.bytes(int(rng.integers(0, 200))) for _ in range(shape[0] * shape[1])], np.object_)
            b = np.array([b"-%d.%d" % (number, i) for i in range(a.size)], np.object_)
            a, b = a.reshape(shape), b.reshape(shape)
            self.given, self.wire, self.want = [a, b], "BYTES", a + b
        else:
            a = rng.integers(-(2**30), 2**30, (count, 16)).astype(np.int32)
            self.given, self.wire, self.want = [a, np.full_like(a, number)], "INT32", a + number

    def inputs(self, library) -> list:
        return [clients.tensor(library, f"INPUT{i}", self.wire, a) for i, a in enumerate(self.given)]

    def check(self, result, id_: str) -> None:
        assert id_ == self.id, f"question {self.id} got the answer of {id_}"
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), self.want, f"question {self.id} of {self.model}")


class Soak:
    """Runs callers for a while and counts the questions and answers by kind of client."""

    def __init__(self, http: str, grpc: str, seconds: float):
        self.http, self.grpc = http, grpc
        self.end = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._next = 0
        self.asked: collections.Counter = collections.Counter()
        self.answered: collections.Counter = collections.Counter()
        self.faults: list[BaseException] = []

    def run(self, callers: int) -> None:
        """Runs so many callers, a quarter of each kind, until the time is up. Raises the first fault."""
        quarter = callers // 4
        kinds = [self._ask_http, self._ask_grpc, self._ask_stream] * quarter
        threads = [threading.Thread(target=self._guard, args=(act,)) for act in kinds]
        threads.append(threading.Thread(target=self._guard, args=(lambda: asyncio.run(self._ask_aio(quarter)),)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(self.end - time.monotonic() + 60)
            assert not thread.is_alive(), f"an answer is lost: asked {self.asked}, answered {self.answered}"
        if self.faults:
            raise self.faults[0]

    def _guard(self, act) -> None:
        try:
            act()
        except BaseException as fault:  # whatever it is, it fails the test
            self.faults.append(fault)

    def _over(self) -> bool:
        """Whether the time is up. A busy machine may get to one kind of caller late: none is left out."""
        return bool(self.faults) or (time.monotonic() >= self.end and len(self.answered) == len(KINDS))

    def _question(self, kind: str) -> Question:
        with self._lock:
            self._next += 1
            self.asked[kind] += 1
            number = self._next
        return Question(number)

    def _count(self, kind: str) -> None:
        with self._lock:
            self.answered[kind] += 1

    def _ask_http(self) -> None:
        library = tritonclient.http
        with library.InferenceServerClient(self.http, network_timeout=30) as client:
            while not self._over():
                q = self._question("http")
                result = client.infer(q.model, q.inputs(library), request_id=q.id)
                q.check(result, result.get_response()["id"])
                self._count("http")

    def _ask_grpc(self) -> None:
        library = tritonclient.grpc
        with library.InferenceServerClient(self.grpc) as client:
            while not self._over():
                q = self._question("grpc")
                result = client.infer(q.model, q.inputs(library), request_id=q.id, client_timeout=30)
                q.check(result, result.get_response().id)
                self._count("grpc")

    async def _ask_aio(self, callers: int) -> None:
        async with tritonclient.grpc.aio.InferenceServerClient(self.grpc) as client:

            async def ask() -> None:
                while not self._over():
                    q = self._question("aio")
                    result = await client.infer(
                        q.model, q.inputs(tritonclient.grpc), request_id=q.id, client_timeout=30
                    )
                    q.check(result, result.get_response().id)
                    self._count("aio")

            await asyncio.gather(*(ask() for _ in range(callers)))

    def _ask_stream(self) -> None:
        """Keeps WINDOW questions under way on one stream; each id must come back once."""
        library = tritonclient.grpc
        answers: queue.Queue = queue.Queue()
        open_: dict[str, Question] = {}
        with library.InferenceServerClient(self.grpc) as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            while open_ or not self._over():
                while len(open_) < WINDOW and not self._over():
                    q = self._question("stream")
                    open_[q.id] = q
                    client.async_stream_infer(q.model, q.inputs(library), request_id=q.id)
                if not open_:
                    break
                result, error = answers.get(timeout=30)
                assert error is None, error
                id_ = result.get_response().id
                assert id_ in open_, f"an answer to {id_}, which has none due"
                open_.pop(id_).check(result, id_)
                self._count("stream")
            client.stop_stream()
        assert answers.empty(), f"{answers.qsize()} answers too many"
