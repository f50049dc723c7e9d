"""Runs the built binary as a child process and looks after it."""

from __future__ import annotations

import http.client
import importlib.util
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("SHOAL", ROOT / "build" / "shoal")).absolute()
PORTS = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")
LOOPBACK = ("--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1")
_LISTENING = re.compile(r"msg=\"?listening\"?.* protocol=(\w+) .*?address=\"?([^\s\"]+)")


def wait_until(true, timeout: float, what: str | Callable[[], str]):
    """Waits for true() to give something, and returns it; fails after timeout seconds and says for what it waited."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while True:
        got = true()
        if got:
            return got
        assert time.monotonic() < deadline, f"after {timeout} s still waiting for {what if isinstance(what, str) else what()}"
        pause.wait(0.01)


def environment() -> dict[str, str]:
    """The child's environment: workers run this Python, and ONNX Runtime is found in its packages unless told."""
    env = dict(os.environ)
    env["PATH"] = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{env.get('PATH', '')}"
    if "SHOAL_ONNXRUNTIME_LIBRARY" not in env:
        spec = importlib.util.find_spec("onnxruntime")
        if spec and spec.origin:
            found = sorted((pathlib.Path(spec.origin).parent / "capi").glob("libonnxruntime.so*"))
            if found:
                env["SHOAL_ONNXRUNTIME_LIBRARY"] = str(found[0])
    return env


class Server:
    """One running `shoal serve`. Use it as a context manager: leaving ends the process."""

    def __init__(self, *args: object, binary: pathlib.Path = BINARY, command=("serve",), env=None, cwd=None):
        assert binary.exists(), f"{binary} is missing: run `make build`, or set SHOAL to the binary"
        self.args = [str(binary), *command, *(str(a) for a in args)]
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            self.args,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**environment(), **(env or {})},
            cwd=cwd,
            text=True,
            errors="replace",
        )
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self._lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def log(self) -> str:
        with self._changed:
            return "\n".join(self._lines)

    def wait_for_log(self, pattern: str, timeout: float = 20) -> re.Match[str]:
        """Waits for a log line that matches, and returns the match."""
        deadline = time.monotonic() + timeout
        seen = 0
        with self._changed:
            while True:
                for line in self._lines[seen:]:
                    found = re.search(pattern, line)
                    if found:
                        return found
                seen = len(self._lines)
                left = deadline - time.monotonic()
                text = "\n".join(self._lines)
                assert not self._ended, f"the server ended without logging {pattern!r}:\n{text}"
                assert left > 0, f"no log line matched {pattern!r} in {timeout} s:\n{text}"
                self._changed.wait(left)

    def address(self, protocol: str) -> str:
        """The address that the log names for a protocol: host:port, or a socket's path."""
        pattern = _LISTENING.pattern.replace(r"(\w+)", f"({protocol})")
        return self.wait_for_log(pattern).group(2)

    @property
    def http(self) -> str:
        return self.address("http")

    @property
    def grpc(self) -> str:
        return self.address("grpc")

    @property
    def metrics(self) -> str:
        return self.address("metrics")

    def wait_ready(self, timeout: float = 30) -> Server:
        wait_until(lambda: self._ready_or_ended(), timeout, f"readiness; the log so far:\n{self.log}")
        assert self.process.poll() is None, f"the server ended before it was ready:\n{self.log}"
        return self

    def _ready_or_ended(self) -> bool:
        return self.process.poll() is not None or self.ready()

    def ready(self) -> bool:
        """Whether the server says that it is ready; one that is not listening is not."""
        with self._changed:
            found = [m for m in map(_LISTENING.search, self._lines) if m and m.group(1) == "http"]
        try:
            return bool(found) and get(found[0].group(2), "/v2/health/ready").status == 200
        except OSError:
            return False

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = 20) -> int:
        """Waits for the end of the process and returns its exit code."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the server did not end in {timeout} s:\n{self.log}") from None
        self._reader.join(5)
        return code

    def rss(self) -> int:
        """Resident bytes of the process."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", text)
        assert found, text
        return int(found.group(1)) * 1024

    def peak_rss(self) -> int:
        """The most resident bytes that the process ever had."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", text)
        assert found, text
        return int(found.group(1)) * 1024


class Answer:
    """A plain HTTP answer, read to its end."""

    def __init__(self, response: http.client.HTTPResponse):
        self.status = response.status
        self.reason = response.reason
        self.headers = response.headers
        self.body = response.read()

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


def get(address: str, path: str, timeout: float = 10) -> Answer:
    return call(address, "GET", path, timeout=timeout)


def post(address: str, path: str, body: bytes | str = b"", headers=None, timeout: float = 10) -> Answer:
    return call(address, "POST", path, body, headers, timeout)


def call(address: str, method: str, path: str, body=None, headers=None, timeout: float = 10) -> Answer:
    """One request on its own connection, with nothing of a client library in between."""
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=timeout)
    try:
        connection.request(method, path, body, headers or {})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def taken_port() -> tuple[socket.socket, int]:
    """A listening socket on a port of the kernel's choice."""
    taken = socket.create_server(("127.0.0.1", 0))
    return taken, taken.getsockname()[1]


def free_port() -> int:
    """A port for a program that must be told one. It is still free when the program starts, minutes later: the kernel
    gives it to no socket, since it lies below the range of ports that it chooses from."""
    local = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
    end = int(local.read_text().split()[0]) if local.exists() else 32768
    for port in random.sample(range(end // 2, end), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
                return port
            except OSError:
                continue
    raise OSError(f"100 ports between {end // 2} and {end} are taken")
