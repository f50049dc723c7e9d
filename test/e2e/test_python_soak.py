"""Callers of three kinds on Python models whose workers are killed at random, all the while.

Every answer is the one that was asked for, only batches of killed workers fail, and
what the clients counted is what the server counted. SHOAL_KILL_SECONDS sets how long;
`make soak-python` takes five minutes.
"""

from __future__ import annotations

import asyncio
import collections
import json
import os
import random
import signal
import threading
import time

import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
from tritonclient.utils import InferenceServerException

import faults
from server import get, wait_until

SECONDS = float(os.environ.get("SHOAL_KILL_SECONDS", "8"))
ROWS = 4
MODELS = ("pair", "single")
CALLERS = 6  # of each kind, on each model


class Books:
    """What the clients were answered."""

    def __init__(self):
        self.end = time.monotonic() + SECONDS
        self.lock = threading.Lock()
        self.good: collections.Counter = collections.Counter()
        self.bad: dict[str, list[str]] = {m: [] for m in MODELS}
        self.wrong: list[str] = []
        self.pids: dict[int, float] = {}  # who answered, and when last
        self._next = 0

    def over(self) -> bool:
        return time.monotonic() >= self.end

    def question(self) -> int:
        with self.lock:
            self._next += 1
            return self._next % (1 << 20)  # exact as a float

    def answered(self, model: str, value: int, result) -> None:
        got, pid = faults.read(result)
        with self.lock:
            self.good[model] += 1
            self.pids[pid] = time.monotonic()
            if got != value + 1:
                self.wrong.append(f"{model}: asked for {value} + 1, got {got}")

    def failed(self, model: str, error: InferenceServerException) -> None:
        with self.lock:
            self.bad[model].append(str(error))

    def victim(self) -> int | None:
        """One that has answered lately."""
        with self.lock:
            fresh = [pid for pid, when in self.pids.items() if time.monotonic() - when < 0.2]
        return random.choice(fresh) if fresh else None


def ask_http(books: Books, server, model: str) -> None:
    with tritonclient.http.InferenceServerClient(server.http, network_timeout=60) as client:
        while not books.over():
            value = books.question()
            try:
                books.answered(model, value, client.infer(model, faults.inputs(tritonclient.http, "", value)))
            except InferenceServerException as error:
                books.failed(model, error)


def ask_grpc(books: Books, server, model: str) -> None:
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        while not books.over():
            value = books.question()
            given = faults.inputs(tritonclient.grpc, "", value)
            try:
                books.answered(model, value, client.infer(model, given, client_timeout=60))
            except InferenceServerException as error:
                books.failed(model, error)


async def ask_aio(books: Books, server) -> None:
    async with tritonclient.grpc.aio.InferenceServerClient(server.grpc) as client:

        async def ask(model: str) -> None:
            while not books.over():
                value = books.question()
                given = faults.inputs(tritonclient.grpc, "", value)
                try:
                    books.answered(model, value, await client.infer(model, given, client_timeout=60))
                except InferenceServerException as error:
                    books.failed(model, error)

        await asyncio.gather(*(ask(m) for m in MODELS for _ in range(CALLERS)))


def run(books: Books, server) -> int:
    """Runs the callers, kills workers, and returns how many were killed."""
    acts = [lambda f=f, m=m: f(books, server, m) for f in (ask_http, ask_grpc) for m in MODELS for _ in range(CALLERS)]
    acts.append(lambda: asyncio.run(ask_aio(books, server)))
    threads = [threading.Thread(target=act, daemon=True) for act in acts]
    for thread in threads:
        thread.start()
    kills, pause = 0, threading.Event()
    while not books.over():
        pause.wait(random.uniform(0.1, 1.5))
        victim = books.victim()
        if victim and victim in faults.children(server.process.pid):
            os.kill(victim, signal.SIGKILL)
            kills += 1
    for thread in threads:
        thread.join(90)
        assert not thread.is_alive(), "an answer is lost"
    return kills


def test_random_kills_fail_only_the_batches_that_were_running(serve, capsys):
    server = serve(wanted=(faults.breakable("pair", count=2, rows=ROWS), faults.breakable("single", rows=ROWS)))
    server.wait_ready()
    books = Books()
    files = faults.open_files(server.process.pid)
    kills = run(books, server)
    failed = {m: len(books.bad[m]) for m in MODELS}
    with capsys.disabled():
        print(f"\n{SECONDS:g} s with {kills} kills: answered {dict(books.good)}, failed {failed}")
    assert not books.wrong
    assert kills >= SECONDS / 5
    for text in sum(books.bad.values(), []):
        assert "killed by signal 9 (SIGKILL)" in text, text
    assert sum(failed.values()) <= kills * ROWS
    for model in MODELS:
        counts = json.loads(get(server.http, f"/v2/models/{model}/stats").text)["model_stats"][0]["inference_stats"]
        assert counts["success"]["count"] == books.good[model]
        assert counts["fail"]["count"] == failed[model]
    assert faults.open_files(server.process.pid) <= files + 20  # connections come and go
    wait_until(lambda: len(faults.children(server.process.pid)) == 3, 20, "three workers")
