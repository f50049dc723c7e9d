"""The log blocks nothing and kills nothing: a reader that stalls, one that has gone, a disk that is full."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time

import pytest

import faults
import models
import server

# Prints a lot for each request, and dies when it is asked to.
CHATTY = '''
import os
import sys

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            if pb.get_input_tensor_by_name(request, "ACT").as_numpy().ravel()[0] == b"exit":
                os._exit(3)
            for i in range(400):
                print(f"{i:4d}" + "x" * 1000, file=sys.stderr)
            sys.stderr.flush()
            value = pb.get_input_tensor_by_name(request, "VALUE").as_numpy()
            pid = np.full((len(value), 1), os.getpid(), np.int32)
            answers.append(pb.InferenceResponse([pb.Tensor("NEXT", value + 1), pb.Tensor("PID", pid)]))
        return answers
'''


def chatty() -> models.Model:
    made = faults.breakable("breakable")
    return models.Model(**{**made.__dict__, "files": {"1/model.py": CHATTY}})


class Piped(server.Server):
    """A server whose log is a pipe of 64 KB that the test reads, stalls or closes."""

    def __init__(self, *args: object, **more):
        self.args = [str(server.BINARY), "serve", *map(str, args), *server.PORTS, *server.LOOPBACK]
        self.pipe, theirs = os.pipe()
        self.process = subprocess.Popen(
            self.args, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=server.environment(), **more
        )
        os.close(theirs)
        os.set_blocking(self.pipe, False)
        self._text = b""

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.hang_up()

    def hang_up(self) -> None:
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1

    def read(self) -> str:
        """Reads what is in the pipe and returns all that was read so far."""
        with contextlib.suppress(BlockingIOError):
            while got := os.read(self.pipe, 1 << 16):
                self._text += got
        return self._text.decode("utf-8", "replace")

    @property
    def log(self) -> str:
        return self._text.decode("utf-8", "replace")

    def read_until(self, pattern: str) -> re.Match[str]:
        return server.wait_until(lambda: re.search(pattern, self.read()), 30, f"{pattern!r} in the log")

    def address(self, protocol: str) -> str:
        return re.search(rf"protocol={protocol} address=(\S+)", self.log).group(1)

    def wait(self, timeout: float = 20) -> int:
        return self.process.wait(timeout)


def work(running: server.Server, rounds: int) -> None:
    """Requests over both protocols, each with 400 KB of output, and a worker that dies after each pair."""
    for i in range(rounds):
        assert faults.ask(running, value=i)[0] == i + 1
        _, before = faults.ask(running, value=i, protocol="grpc")
        with pytest.raises(Exception, match="ended with exit code 3"):
            faults.ask(running, "exit")
        assert faults.ask(running, value=41)[1] != before  # by a new worker


def metric(running: server.Server) -> int:
    text = server.get(running.metrics, "/metrics").text
    return int(re.search(r"^shoal_log_lines_dropped_total (\d+)$", text, re.M).group(1))


def test_a_log_that_nobody_reads_holds_up_nothing(repository):
    with Piped("--model-repository", repository(chatty()), "--log-verbose=1", "--exit-timeout-secs=10") as running:
        running.read_until("msg=ready")
        work(running, 4)  # nobody reads meanwhile
        lost = server.wait_until(lambda: metric(running), 10, "dropped lines to be counted")
        assert lost > 100
        said = int(running.read_until(r"msg=\"(\d+) log lines were dropped here").group(1))
        assert 0 < said <= metric(running)
        work(running, 2)
        begin = time.monotonic()
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        assert time.monotonic() - begin < 3


def test_a_flood_of_output_does_not_take_the_memory(repository):
    with Piped("--model-repository", repository(chatty())) as running:
        running.read_until("msg=ready")
        faults.ask(running)
        before = running.rss()
        for i in range(50):  # 20 MB that nobody reads
            faults.ask(running, value=i)
        assert running.rss() - before < 32 << 20


def test_a_log_whose_reader_has_gone_ends_nothing(repository):
    with Piped("--model-repository", repository(chatty()), "--log-verbose=1") as running:
        running.read_until("msg=ready")
        running.hang_up()
        work(running, 3)
        assert metric(running) > 400
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def test_a_stalled_log_does_not_hold_up_an_end_with_an_error(repository):
    path = repository(faults.breakable())
    with Piped("--model-repository", path, "--exit-timeout-secs=1") as running:
        running.read_until("msg=ready")
        fill(running)
        client = subprocess.Popen(["curl", "-s", f"http://{running.http}/v2/models/breakable/infer", "-d", LOOP], stdout=subprocess.DEVNULL)
        server.wait_until(lambda: 'busy{model="breakable",version="1"} 1' in server.get(running.metrics, "/metrics").text, 10, "the model to hang")
        begin = time.monotonic()
        running.signal(signal.SIGTERM)
        assert running.wait() == 1
        assert time.monotonic() - begin < 2.5
        client.wait(10)


LOOP = '{"inputs":[{"name":"ACT","datatype":"BYTES","shape":[1,1],"data":["loop"]},{"name":"VALUE","datatype":"FP32","shape":[1,1],"data":[1]}]}'


def fill(running: Piped) -> None:
    """Fills the pipe from our side, through the server's own end of it."""
    with open(f"/proc/{running.process.pid}/fd/2", "wb", buffering=0) as end:
        os.set_blocking(end.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            while True:
                if end.write(b"x" * 4096) is None:
                    return


def test_a_full_disk_costs_lines_only(repository, tmp_path):
    sockets = [f"--{p}-address=unix://{tmp_path}/{p}" for p in ("http", "metrics")]
    args = ("--model-repository", repository(chatty()), "--log-file=/dev/full", "--allow-grpc=false", *sockets)
    with server.Server(*args) as running:
        server.wait_until(lambda: curl(tmp_path / "http", "/v2/health/ready", "-f").returncode == 0, 30, "readiness")
        for _ in range(3):
            answer = curl(tmp_path / "http", "/v2/models/breakable/infer", "-d", LOOP).stdout
            assert '"NEXT"' in answer, answer
        text = curl(tmp_path / "metrics", "/metrics").stdout
        assert int(re.search(r"^shoal_log_lines_dropped_total (\d+)$", text, re.M).group(1)) > 400
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def curl(path, url: str, *args: str) -> subprocess.CompletedProcess:
    command = ["curl", "-s", "--max-time", "10", "--unix-socket", str(path), *args, "http://localhost" + url]
    return subprocess.run(command, capture_output=True, text=True)
