"""Large rows of sessions reach Python models without a copy: the worker maps them where their clients wrote them."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import threading

import numpy as np
import pytest

import pymodels
from server import LOOPBACK, PORTS, Server, wait_until

sys.path.insert(0, str(pymodels.PACKAGE))

import shoal  # noqa: E402

# Answers each row with its sum, the worker's number, the rows of the batch and how many rows are mapped from files of clients.
LOOK = """
import os
import time
import numpy as np
import triton_python_backend_utils as pb_utils

kept = []

class TritonPythonModel:
    def execute(self, requests):
        mapped = open("/proc/self/maps").read().count("memfd:shoal-session")
        arrays = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        answers = []
        for x in arrays:
            told = [[row.astype(np.float64).sum(), os.getpid(), len(requests), mapped] for row in x]
            if KEEP:
                told = [[sum(float(k[0, 0]) for k in kept), os.getpid(), len(kept), mapped]]
                if len(kept) < 3:
                    kept.append(x)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", np.array(told, np.float64))]))
            if WRITE:
                x[:] = -1
        time.sleep(0.002)  # others come meanwhile
        return answers
"""
CONFIG = """
max_batch_size: 16
input [ { name: "x" data_type: %s dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP64 dims: [ 4 ] } ]
dynamic_batching { }
"""
LARGE = (1 << 17) // 4  # elements of a row that is mapped


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    repository = tmp_path_factory.mktemp("repository")
    for name, kind, flags in [
        ("look", "TYPE_FP32", "KEEP = WRITE = False"),
        ("numbers", "TYPE_INT32", "KEEP = WRITE = False"),
        ("keep", "TYPE_FP32", "KEEP, WRITE = True, False"),
        ("write", "TYPE_FP32", "KEEP, WRITE = False, True"),
    ]:
        pymodels.write(repository, name, flags + LOOK, CONFIG % kind)
    with tempfile.TemporaryDirectory(prefix="s") as folder:  # a socket's path must be short
        socket = os.path.join(folder, "s")
        with Server("--model-repository", repository, "--session-socket", socket, *PORTS, *LOOPBACK) as server:
            server.wait_ready()
            server.socket = socket
            yield server
            assert server.process.poll() is None, f"the server died:\n{server.log}"


def files(pid: int) -> int:
    """How many files of clients a worker has open."""
    found = 0
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += "memfd:shoal-session" in os.readlink(fd)
        except OSError:  # closed meanwhile
            pass
    return found


def mapped(pid: int) -> int:
    return pathlib.Path(f"/proc/{pid}/maps").read_text().count("memfd:shoal-session")


def test_rows_of_many_sessions_are_mapped_and_right(running):
    seen, wrong = [], []

    def work(i: int) -> None:
        with shoal.Session("look", running.socket) as s:
            for n in range(40):
                x = np.zeros((1, LARGE), np.float32)
                x[0, 0], x[0, -1] = i * 1000 + n, 1  # both ends of the row
                y = s.run(x=x)
                seen.append((int(y[0, 2]), int(y[0, 3]), int(y[0, 1])))
                if y[0, 0] != i * 1000 + n + 1:
                    wrong.append((i, n, y.tolist()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert all(rows == maps for rows, maps, _ in seen), "every row is mapped"
    assert max(rows for rows, _, _ in seen) > 1, "rows of several sessions meet in a batch"
    pid = seen[0][2]
    assert mapped(pid) == 0, "only while a batch runs"
    wait_until(lambda: files(pid) == 0, 10, "the worker to close the files of sessions that have ended")


def test_what_cannot_be_mapped_is_copied_into_the_same_batch(running):
    wrong, batches = [], []

    def call(ask, size: int, i: int) -> None:
        for n in range(30):
            x = np.zeros((1, size), np.float32)
            x[0, 0], x[0, -1] = i * 1000 + n, 1
            y = ask(x)
            batches.append((int(y[0, 2]), int(y[0, 3])))
            if y[0, 0] != i * 1000 + n + 1:
                wrong.append((i, n, y.tolist()))

    with shoal.Session("look", running.socket) as s, shoal.Session("look", running.socket) as odd:
        http = [shoal.Client(running.http) for _ in range(3)]
        asks = [(lambda x: s.run(x=x), LARGE)] * 3 + [(lambda x, c=c: c.infer("look", {"x": x})["y"], LARGE) for c in http]
        asks += [(lambda x: odd.run(x=x), LARGE + 1), (lambda x: odd.run(x=x), 7)]  # not whole pages, and small
        threads = [threading.Thread(target=call, args=(*a, i)) for i, a in enumerate(asks)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong
    assert any(0 < maps < rows for rows, maps in batches), "mapped and copied rows meet in one batch"


def test_numbers_that_could_be_indexes_are_copied(running):
    with shoal.Session("numbers", running.socket) as s:
        y = s.run(x=np.ones((1, LARGE), np.int32))
        assert y[0, 0] == LARGE and y[0, 3] == 0


def test_a_handler_may_keep_a_row(running):
    with shoal.Session("keep", running.socket) as s:
        for n in range(1, 4):
            s.run(x=np.full((1, LARGE), n, np.float32))
        for _ in range(20):
            y = s.run(x=np.full((1, LARGE), 100, np.float32))
        assert y[0, 2] == 3 and y[0, 0] == 1 + 2 + 3, "what it keeps does not change with the client's next call"


def test_a_handler_may_write_to_a_row(running):
    with shoal.Session("write", running.socket) as s:
        for n in range(5):
            assert s.run(x=np.full((1, LARGE), n, np.float32))[0, 0] == n * LARGE


def _call_for_ever(path: str, started) -> None:
    s = shoal.Session("look", path)
    x = np.ones((1, LARGE), np.float32)
    while True:
        s.run(x=x)
        started.set()


def test_killed_clients_leave_no_file_and_cost_nobody_anything(running):
    context = multiprocessing.get_context("spawn")
    with shoal.Session("look", running.socket) as s:
        x = np.ones((1, LARGE), np.float32)
        pid = int(s.run(x=x)[0, 1])
        for _ in range(3):
            others = []
            for _ in range(3):
                started = context.Event()
                others.append((context.Process(target=_call_for_ever, args=(running.socket, started)), started))
                others[-1][0].start()
            for _, started in others:
                assert started.wait(30)
            assert files(pid) == 4
            for process, _ in others:
                os.kill(process.pid, signal.SIGKILL)
                process.join()
            for _ in range(20):
                assert s.run(x=x)[0, 0] == LARGE
            wait_until(lambda: files(pid) == 1, 10, "the files of killed clients to be closed")


def test_a_new_worker_gets_the_files_again(running):
    with shoal.Session("look", running.socket) as s:
        x = np.ones((1, LARGE), np.float32)
        pid = int(s.run(x=x)[0, 1])
        os.kill(pid, signal.SIGKILL)

        def again() -> bool:
            try:
                y = s.run(x=x)
            except shoal.InferenceError:
                return False
            return y[0, 1] != pid and y[0, 0] == LARGE and y[0, 3] == 1

        wait_until(again, 20, "an answer of a new worker")
