"""A server as a child of this process: its start, its addresses, its end."""

from __future__ import annotations

import atexit
import collections
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from typing import Any, Sequence

import numpy as np

from shoal import _dtypes, _faults
from shoal._binary import ServeError, find_binary
from shoal._client import Client
from shoal._spec import Input, Output


class Server:
    """A running server. shoal.serve makes it."""

    def __init__(self, source: Any, address: str, http: int, grpc: int, metrics: int,
                 flags: Sequence[str], log: bool, timeout: float):  # fmt: skip
        self.name: str = source.name
        self._source = source
        self._echo = log
        self._ready = False
        self._tail: collections.deque[str] = collections.deque(maxlen=200)
        self._addresses: dict[str, str] = {}
        self._asked: dict[str, str] | None = None
        self._changed = threading.Condition()
        try:
            self._process = self._start(
                [f"--http-address={address}", f"--http-port={http}", f"--grpc-address={address}", f"--grpc-port={grpc}",
                 f"--metrics-address={address}", f"--metrics-port={metrics}", *flags])  # fmt: skip
        except BaseException:
            source.close()
            raise
        atexit.register(self.stop)
        self._reader = threading.Thread(target=self._read, name="shoal-log", daemon=True)
        self._reader.start()
        try:
            self._wait_ready(time.monotonic() + timeout, timeout)
        except BaseException:
            self.stop()
            raise

    def _start(self, flags: list[str]) -> subprocess.Popen:
        own = [f"--python={sys.executable}", f"--stop-with-process={os.getpid()}"]
        command = [find_binary(), "serve", *own, *self._source.args, *flags]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **self._source.env},
            text=True,
            errors="replace",
            start_new_session=True,  # this process handles a Ctrl-C in the terminal
        )

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if self._echo:
                sys.stderr.write(line)
            elif self._ready and "level=ERROR" in line:  # before, they are in the exception
                sys.stderr.write(_error_in(line) + "\n")
            found = _LISTENING.search(line)
            with self._changed:
                self._tail.append(line.rstrip("\n"))
                if found:
                    self._addresses[found.group(1)] = found.group(2)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _wait_ready(self, deadline: float, timeout: float) -> None:
        client: Client | None = None
        while True:
            if self._process.poll() is not None:
                self._reader.join(5)
                fault = self._source.fault
                if fault is not None:  # Python shows its traceback, with the calls of the user's code
                    told = f"model '{self.name}' was not loaded: {type(fault).__name__}: {fault}"
                    raise ServeError(told) from fault.with_traceback(_faults.outside(fault.__traceback__))
                raise ServeError(f"the server ended with code {self._process.returncode}:\n{self._why()}")
            if "http" in self._addresses:
                client = client or Client(self.url)
                if client.ready():
                    self.client = client
                    self._ready = True
                    return
            if time.monotonic() > deadline:
                raise ServeError(f"the server was not ready after {timeout:g} s; its log:\n{self.log}")
            with self._changed:
                self._changed.wait(0.01)

    def _why(self) -> str:
        """The log lines that explain why the server ended."""
        told = [_error_in(line) for line in self._tail if "level=ERROR" in line or line.startswith("shoal:")]
        return "\n".join(told or self._tail)

    @property
    def url(self) -> str:
        """Where HTTP is served: http://127.0.0.1:41231."""
        return "http://" + self._addresses["http"]

    @property
    def grpc(self) -> str:
        """Where gRPC is served: 127.0.0.1:41232."""
        return self._addresses["grpc"]

    @property
    def metrics(self) -> str:
        """Where the metrics are: http://127.0.0.1:41233/metrics."""
        return f"http://{self._addresses['metrics']}/metrics"

    @property
    def log(self) -> str:
        """The last lines of the server's log."""
        with self._changed:
            return "\n".join(self._tail)

    def infer(self, **inputs: Any) -> dict[str, np.ndarray]:
        """Sends arrays by input name, with rows along the first axis, and returns the outputs by name."""
        if self._process.poll() is not None:
            raise ServeError(f"the server of {self.name} has ended; shoal.serve starts another")
        declared = self._source.declared
        if declared is None:
            types = self._types()
            return self.client.infer(self.name, {n: _typed(types.get(n, ""), v) for n, v in inputs.items()})
        sent = {n: _sent(declared.inputs.get(n), v, declared.max_batch > 0) for n, v in inputs.items()}
        got = self.client.infer(self.name, sent)
        return {n: _got(declared.outputs.get(n), v) for n, v in got.items()}

    def _types(self) -> dict[str, str]:
        """The model's inputs and their data types, for a model without a class here."""
        if self._asked is None:
            metadata = self.client.get("/v2/models/" + urllib.parse.quote(self.name, safe=""))
            self._asked = {i["name"]: i["datatype"] for i in metadata["inputs"]}
        return self._asked

    def __call__(self, **inputs: Any) -> Any:
        """Like infer; the output itself where the model has one."""
        outputs = self.infer(**inputs)
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def wait(self) -> None:
        """Waits until the server ends, or until Ctrl-C, which stops it."""
        try:
            self._process.wait()
        except KeyboardInterrupt:
            self.stop()

    def stop(self, timeout: float = 35) -> None:
        """Stops the server after its requests in flight."""
        atexit.unregister(self.stop)
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join(5)
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._source.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running at " + self.url if self._process.poll() is None else "stopped"
        return f"<shoal.Server of {self.name}, {state}>"


def _error_in(line: str) -> str:
    """The error in a line of the log, with its own lines; the line itself when it has none."""
    for key in "err", "msg":
        found = re.search(rf" {key}=(\"(?:[^\"\\]|\\.)*\"|\S+)", line)
        if found is not None:
            try:
                return str(json.loads(found.group(1)))
            except ValueError:
                return found.group(1)
    return line.rstrip("\n")


_LISTENING = re.compile(r"msg=\"?listening\"?.* protocol=(\w+) .*?address=\"?([^\s\"]+)")


def _typed(datatype: str, value: Any) -> Any:
    """An input for the client, with the server's type."""
    if datatype in ("", "BYTES"):
        return np.asarray(value)
    if datatype == "BF16":
        return np.asarray(value), datatype
    return np.asarray(value, dtype=_dtypes.NUMPY[datatype])


def _sent(spec: Input | None, value: Any, batched: bool) -> Any:
    """An input for the client, with the declared type."""
    if spec is None:
        return np.asarray(value)
    array = np.asarray(value, dtype=None if spec.text else spec.dtype)
    if not spec.shape and array.ndim == (1 if batched else 0):
        array = array.reshape((-1, 1) if batched else (1,))
    return (array, "BF16") if spec.datatype == "BF16" else array


def _got(spec: Output | None, array: np.ndarray) -> np.ndarray:
    """An output in the form that predict returned."""
    if spec is None:
        return array
    if not spec.shape:
        array = array.reshape(array.shape[:-1])
    if spec.text == "str":
        out = np.empty(array.shape, dtype=np.object_)
        out.reshape(-1)[:] = [b.decode("utf-8", "replace") for b in array.reshape(-1).tolist()]
        return out
    return array
