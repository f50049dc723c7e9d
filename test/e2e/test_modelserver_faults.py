"""Archives' workers under load: killed, scaled down, and the server stopped. No request is lost but those of the killed batch."""

from __future__ import annotations

import collections
import json
import os
import signal
import threading

import pytest

import archives
from server import call, wait_until

CALLERS = 20
BATCH = 8

# Sleeps as long as the first request of the batch says, and answers with the worker's process.
HANDLER = """
import os
import time


def handle(data, context):
    if data is None:
        return None
    time.sleep(float(bytes(data[0]["body"])))
    return [str(os.getpid())] * len(data)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    (folder / "store").mkdir()
    (folder / "pid.py").write_text(HANDLER)
    archives.pack(folder, "torchserve", "pid", folder / "pid.py", folder / "store", "1.0")
    return folder


class Running:
    """A server with the model and that many workers."""

    def __init__(self, folder, workers: int, queue: int, delay: int = 5):
        self.server = archives.server(
            folder, "torchserve", "--model-store", folder / "store", "--disable-token-auth", "--enable-model-api", config=f"job_queue_size={queue}\n"
        )  # fmt: skip
        self.server.wait_for_log("Model server started.")
        self.inference, self.management = self.server.address("inference"), self.server.address("management")
        self.manage("POST", f"/models?url=pid.mar&batch_size={BATCH}&max_batch_delay={delay}&initial_workers={workers}")

    def manage(self, method: str, path: str) -> object:
        answer = call(self.management, method, path, timeout=60)
        assert answer.status == 200, answer.text
        return json.loads(answer.text)

    def model(self) -> dict:
        return self.manage("GET", "/models/pid")[0]

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()


class Load:
    """Callers that ask again and again, each on its own connections."""

    def __init__(self, address: str, seconds: str = "0.005"):
        self._address, self._seconds = address, seconds
        self._lock = threading.Lock()
        self.answers: collections.Counter[tuple[int, str]] = collections.Counter()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(CALLERS)]

    def _run(self) -> None:
        while not self._stop.is_set():
            answer = call(self._address, "POST", "/predictions/pid", self._seconds, timeout=60)
            with self._lock:
                self.answers[answer.status, answer.text] += 1

    def __enter__(self) -> Load:
        for t in self._threads:
            t.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for t in self._threads:
            t.join()

    def good(self) -> int:
        with self._lock:
            return sum(n for (status, _), n in self.answers.items() if status == 200)

    def more(self) -> None:
        """Returns after several answers more to each caller."""
        begin = self.good()
        wait_until(lambda: self.good() >= begin + 5 * CALLERS, 60, "answers")

    def failed(self) -> list[tuple[int, str]]:
        return [(status, text) for (status, text), n in self.answers.items() for _ in range(n) if status != 200]


@pytest.mark.parametrize("workers,queue", [(1, 100), (1, 1000), (2, 100)])
def test_a_killed_worker_loses_its_batch_and_no_other_request(folder, workers, queue):
    with Running(folder, workers, queue) as r:
        with Load(r.inference) as load:
            load.more()
            victim = r.model()["workers"][0]["pid"]
            os.kill(victim, signal.SIGKILL)
            load.more()
            wait_until(lambda: all(w["pid"] not in (0, victim) for w in r.model()["workers"]), 60, "another worker")
            load.more()
        failed = load.failed()
        assert len(failed) <= BATCH and {json.loads(text)["message"] for _, text in failed} <= {"Worker died."}, failed


def test_scaling_up_and_down_loses_nothing(folder):
    with Running(folder, 2, 1000) as r:
        with Load(r.inference) as load:
            for n in (1, 3, 1, 2):
                load.more()
                r.manage("PUT", f"/models/pid?min_worker={n}&max_worker={n}&synchronous=true")
                assert len(r.model()["workers"]) == n
            load.more()
        assert load.failed() == []


def test_sigterm_answers_what_is_in_flight(folder):
    with Running(folder, 1, 100, delay=10_000) as r:
        asked = [threading.Thread(target=lambda: answers.append(call(r.inference, "POST", "/predictions/pid", "0.5", timeout=60))) for _ in range(CALLERS)]
        answers: list = []
        for t in asked:
            t.start()
        wait_until(lambda: r.model()["jobQueueStatus"]["pendingRequests"] == CALLERS - BATCH, 30, "a full batch, and the others queued")
        r.server.signal(signal.SIGTERM)
        for t in asked:
            t.join()
        assert [a.status for a in answers] == [200] * CALLERS
        assert r.server.wait() == 0
