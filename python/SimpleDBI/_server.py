"""The private server that Run starts, and what Session asks it for."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from shoal._binary import find_binary

FOLDER = "SIMPLEDBI_SERVER"  # the environment variable that has the private server's folder


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket: nobody else on this machine can load models."""

    def __init__(self, path: str, timeout: float):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(folder: str, method: str, path: str, body: bytes = b"", timeout: float = 10, port: str = "http") -> tuple[int, bytes]:
    connection = _Connection(os.path.join(folder, port), timeout)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


class Private:
    """A server for the workers of one Run."""

    def __init__(self, timeout: float = 60):
        self.folder = tempfile.mkdtemp(prefix="sdbi-")
        os.mkdir(os.path.join(self.folder, "models"))
        self.socket = os.path.join(self.folder, "s")
        sockets = [f"--{port}-address=unix://{self.folder}/{port}" for port in ("http", "metrics")]
        self._log = open(os.path.join(self.folder, "log"), "w+")
        self._process = subprocess.Popen(
            [find_binary(), "serve", f"--python={sys.executable}", f"--stop-with-process={os.getpid()}",
             "--model-repository", os.path.join(self.folder, "models"), "--model-control-mode=explicit", "--allow-grpc=false",
             "--session-socket", self.socket, "--session-max-sessions=4096", *sockets],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._log, start_new_session=True)  # fmt: skip
        deadline = time.monotonic() + timeout
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = self.log()
                self.stop()
                raise RuntimeError(f"the server of Run did not start:\n{log}")
            time.sleep(0.005)

    def _ready(self) -> bool:
        try:
            return ask(self.folder, "GET", "/v2/health/ready")[0] == 200
        except OSError:
            return False

    def log(self) -> str:
        self._log.flush()
        self._log.seek(0)
        return "".join(self._log.readlines()[-20:])

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(35)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def create(folder: str, spec: dict[str, Any]) -> None:
    """Loads a model into the private server, unless another session has: the first one decides how."""
    name = spec["name"]
    if not re.fullmatch(r"[\w][\w.-]*", name):
        raise ValueError(f"name is {name!r}; want letters, digits, _, - and .")
    with open(os.path.join(folder, name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        home = os.path.join(folder, "models", name)
        if os.path.exists(home):
            return
        version = os.path.join(home, "1")
        os.makedirs(version)
        try:
            _write(home, version, spec)
            status, body = ask(folder, "POST", f"/v2/repository/models/{name}/load", timeout=600)
            if status != 200:
                raise RuntimeError(f"model {name!r} did not load: {_error(body)}")
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise


def _write(home: str, version: str, spec: dict[str, Any]) -> None:
    config = [f'max_batch_size: {spec["max_batch_size"] if spec["dynamic_batch"] or spec["model_type"] == "onnx" else 0}']
    if spec["dynamic_batch"]:
        config.append("dynamic_batching { max_queue_delay_microseconds: %d }" % max(1, round(spec["timeout"] * 1e6)))
        config.append('parameters { key: "SHOAL_BATCHING" value { string_value: "fill" } }')
    if spec["model_type"] == "onnx":
        if not os.path.exists(spec["path"]):
            raise FileNotFoundError(f"model {spec['name']!r}: {spec['path']} does not exist")
        os.symlink(spec["path"], os.path.join(version, "model.onnx"))
        config += ['backend: "onnxruntime"', "instance_group { count: %d }" % spec["duplicate_num"]]
    else:
        config.append('backend: "python"')
        with open(os.path.join(version, "model.py"), "w") as file:
            file.write(f"import json\n\nfrom SimpleDBI import _models\n\nServed = _models.model(json.loads({json.dumps(spec)!r}))\nServed.__module__ = __name__\n")
    with open(os.path.join(home, "config.pbtxt"), "w") as file:
        file.write("\n".join(config) + "\n")


def _error(body: bytes) -> str:
    try:
        return json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace")


def offer(metrics: Any, model: str, fields: dict[str, float], **tags: str) -> bool:
    """Puts a metric on the queue, unless it is full: metrics must not slow calls down."""
    try:
        metrics.put_nowait({"tags": {"model": model, **tags}, "fields": fields})
        return True
    except queue.Full:
        return False


class Watcher:
    """Puts the server's figures on the metric queue, ten times a second."""

    def __init__(self, folder: str, metrics: Any):
        self._folder, self._metrics = folder, metrics
        self._last: dict[str, dict[str, float]] = {}
        self._health = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sdbi-metrics", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last = False
        while not last:
            last = self._ended.wait(0.1)
            try:
                self._look()
            except (OSError, ValueError, http.client.HTTPException):
                pass  # the server is busy, or stops

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        _, body = ask(self._folder, "GET", "/v2/models/stats")
        pending = dict(re.findall(r'^nv_inference_pending_request_count\{model="([^"]*)"[^}]*\} (\S+)', self._text(), re.M))
        health = time.monotonic() - self._health >= 5
        found = json.loads(body).get("model_stats", ())
        for m in found:
            name, now = m["name"], _figures(m)
            last = self._last.get(name, dict.fromkeys(now, 0.0))
            self._last[name] = now
            for fields in _fields({k: now[k] - last[k] for k in now}):
                offer(self._metrics, name, fields)
            offer(self._metrics, name, {"input_tensor_qsize_value": float(pending.get(name, 0))})
            offer(self._metrics, name, {"batched_tensor_qsize_value": 0})  # a batch is formed when a model is free
            offer(self._metrics, name, {"output_tensor_qsize_value": 0})  # answers go to their callers at once
            if health:
                status, _ = ask(self._folder, "GET", f"/v2/models/{name}/ready")
                offer(self._metrics, name, {"model_handler_health_value": float(status == 200)}, model_handler_name=name)
        if health and found:
            self._health = time.monotonic()

    def _text(self) -> str:
        return ask(self._folder, "GET", "/metrics", port="metrics")[1].decode("utf-8", "replace")


def _figures(stats: dict[str, Any]) -> dict[str, float]:
    """The counters of a model, in seconds."""
    parts = stats["inference_stats"]
    figures = {"rows": float(stats["inference_count"]), "batches": float(stats["execution_count"]), "failed": float(parts["fail"]["count"])}
    for part in ("queue", "compute_input", "compute_infer", "compute_output"):
        figures[part] = parts[part]["ns"] / 1e9
        figures[part + "_count"] = float(parts[part]["count"])
    return figures


def _fields(d: dict[str, float]) -> list[dict[str, float]]:
    """The metrics of what happened since the last look: the means."""
    mean = {p: d[p] / d[p + "_count"] for p in ("queue", "compute_input", "compute_infer", "compute_output") if d[p + "_count"] > 0}
    found: list[dict[str, float]] = []
    if len(mean) == 4 and d["batches"] > 0:
        found = [
            {"backend_batch_gather_cost": mean["queue"]},
            {"backend_batch_concat_cost": mean["compute_input"]},
            {"backend_batch_size_value": d["rows"] / d["batches"]},
            {"backend_forward_model_cost": mean["compute_infer"]},
            {"backend_forward_cost": mean["compute_input"] + mean["compute_infer"] + mean["compute_output"]},
            {"model_proc_cost": mean["compute_infer"]},
            {"backend_scatter_cost": mean["compute_output"]},
        ]
    if d["failed"] > 0:
        found.append({"batch_handler_error_counter": d["failed"]})
    return found
