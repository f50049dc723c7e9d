"""Callers over both protocols while their model is reloaded, resized and broken: no request may be lost.

SHOAL_RELOAD_SECONDS makes it longer (`make soak-reload`: a minute each) and SHOAL_RELOADS repeats plain reloads.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import textwrap
import threading
import time

import numpy as np
import pytest

import clients
import graphs
import models
import pymodels
from server import wait_until
from test_control import connect, index, refused

SECONDS = float(os.environ.get("SHOAL_RELOAD_SECONDS", 4))
RELOADS = int(os.environ.get("SHOAL_RELOADS", 8))
CALLERS = 32 if SECONDS >= 30 else 4  # of each protocol
ROW = np.array([[1, 2, 3, 4]], np.float32)
# The Python client holds its interpreter's lock; this keeps callers from starving what changes the model.
PAUSE = 0.002

TIMES = """
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            out = []
            for r in requests:
                x = pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy()
                out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x * np.float32(FACTOR))]))
            return out
"""


class Scaled:
    """A folder of a model that multiplies by a number, and what may be done to it."""

    def __init__(self, repository: pathlib.Path, kind: str):
        self.folder = repository / "scaled"
        self.kind = kind
        self.count = 1
        self.policy = "version_policy { all { } }\n"
        self.write(1, 2.0)
        self.configure()

    def write(self, version: int, factor: float) -> None:
        """Writes a version; the file appears at once and whole."""
        folder = self.folder / str(version)
        made = self.folder.parent / f".{version}"
        made.mkdir(parents=True)
        if self.kind == "onnx":
            (made / "model.onnx").write_bytes(graphs.scale(factor))
        else:
            (made / "model.py").write_text("import numpy as np\n" + textwrap.dedent(TIMES.replace("FACTOR", str(factor))))
        self.folder.mkdir(exist_ok=True)
        if folder.exists():
            for file in made.iterdir():
                os.replace(file, folder / file.name)
            made.rmdir()
        else:
            made.rename(folder)

    def remove(self, version: int) -> None:
        shutil.rmtree(self.folder / str(version))

    def configure(self, text: str | None = None) -> None:
        backend = {"onnx": "onnxruntime", "python": "python"}[self.kind]
        tensors = 'input { name: "INPUT0" data_type: TYPE_FP32 dims: 4 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 4 }\n'
        whole = f'backend: "{backend}"\nmax_batch_size: 8\ndynamic_batching {{ }}\n{tensors}{self.policy}{models.instances(self.count)}'
        (self.folder / ".config").write_text(text if text is not None else whole)
        os.replace(self.folder / ".config", self.folder / "config.pbtxt")


class Callers:
    """Threads that ask without a pause and check every answer."""

    def __init__(self, running, factors: set[float]):
        self.factors, self.faults, self.answers = factors, [], 0
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._call, args=(running, protocol), daemon=True)
            for protocol in ("http", "grpc")
            for _ in range(CALLERS)
        ]

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(t.is_alive() for t in self._threads), "a request was never answered"

    def _call(self, running, protocol: str) -> None:
        client, _ = connect(running, protocol)
        inputs = [clients.tensor(clients.LIBRARIES[protocol], "INPUT0", "FP32", ROW)]
        while not self._stop.wait(PAUSE):
            try:
                got = client.infer("scaled", inputs).as_numpy("OUTPUT0")
            except Exception as fault:
                self.faults.append(f"{protocol}: {fault}")
                return
            if float(got[0, 0]) not in self.factors or not np.array_equal(got, ROW * got[0, 0]):
                self.faults.append(f"{protocol}: got {got}, want a multiple of {ROW} by one of {self.factors}")
                return
            self.answers += 1

    def assert_all_answered(self) -> None:
        assert not self.faults, "\n".join(self.faults[:5])
        assert self.answers > 10 * len(self._threads), "the callers got hardly any answers"


@pytest.mark.parametrize("kind", ["onnx", "python"])
def test_no_request_is_lost_while_a_model_is_loaded_again(serve, tmp_path, kind):
    model = Scaled(tmp_path / "models", kind)
    running = serve(
        "--model-control-mode=explicit", "--load-model=scaled", "--model-repository", tmp_path / "models", pymodels.PYTHON
    ).wait_ready()
    control, _ = connect(running, "grpc")
    end = time.monotonic() + SECONDS
    reloads = turns = 0
    with Callers(running, {2.0, 3.0, 4.0}) as callers:
        while time.monotonic() < end or turns < 1:
            turns += 1
            model.write(1, 3.0 if turns % 2 else 2.0)
            control.load_model("scaled")
            for model.count in (3, 2, 1):
                model.configure()
                control.load_model("scaled")
            model.write(2, 4.0)
            control.load_model("scaled")
            model.configure("input {")
            assert "config.pbtxt" in refused(control.load_model, "scaled")[1]
            model.configure()
            model.remove(2)
            control.load_model("scaled")
            reloads += 7
    callers.assert_all_answered()
    assert index(control)[0] == {"name": "scaled", "version": "1", "state": "READY"}
    assert reloads >= (40 if SECONDS >= 30 else 7)


@pytest.mark.parametrize("kind", ["onnx", "python"])
def test_no_request_is_lost_under_poll(serve, tmp_path, kind):
    model = Scaled(tmp_path / "models", kind)
    running = serve(
        "--model-control-mode=poll", "--repository-poll-secs=1", "--model-repository", tmp_path / "models", pymodels.PYTHON
    ).wait_ready()
    control, _ = connect(running, "grpc")

    def lines(want: dict[str, str]) -> bool:
        return {m["version"]: m["state"] for m in index(control) if m["state"] != "UNAVAILABLE"} == want

    end = time.monotonic() + SECONDS
    turns = 0
    with Callers(running, {2.0, 3.0, 4.0}) as callers:
        while time.monotonic() < end or turns < 1:
            turns += 1
            model.count = 1 + turns % 3
            model.configure()
            running.wait_for_log(f"instances changed.*instances={model.count} ")
            model.configure("nonsense")
            wait_until(lambda: index(control)[0].get("reason"), 20, "the bad configuration to be seen")
            model.configure()
            wait_until(lambda: not index(control)[0].get("reason"), 20, "the good one to be seen")
            model.write(2, 4.0)
            wait_until(lambda: lines({"1": "READY", "2": "READY"}), 30, "version 2")
            model.remove(2)
            wait_until(lambda: lines({"1": "READY"}), 30, "version 2 to go")
    callers.assert_all_answered()


@pytest.mark.parametrize("kind", ["onnx", "python"])
def test_reloads_leave_nothing_behind(serve, tmp_path, kind):
    """Memory, files, threads and processes are after many reloads what they were after some."""
    model = Scaled(tmp_path / "models", kind)
    running = serve(
        "--model-control-mode=explicit", "--load-model=scaled", "--model-repository", tmp_path / "models", pymodels.PYTHON
    ).wait_ready()
    control, _ = connect(running, "grpc")
    proc = pathlib.Path(f"/proc/{running.process.pid}")

    def files() -> int:
        return len(list((proc / "fd").iterdir()))

    def threads() -> int:
        return len(list((proc / "task").iterdir()))

    def children() -> int:
        return sum(len((task / "children").read_text().split()) for task in (proc / "task").iterdir())

    def reload(n: int) -> None:
        for i in range(n):
            model.write(1, 2.0 + i % 2)
            control.load_model("scaled")

    def settled() -> bool:
        return children() == (1 if kind == "python" else 0)

    reload(RELOADS // 4)
    wait_until(settled, 20, "the old workers to end")
    before = files(), threads(), running.rss()
    shared = set(pathlib.Path("/dev/shm").iterdir())
    reload(RELOADS)
    wait_until(settled, 20, "the old workers to end")
    wait_until(lambda: files() <= before[0] + 2, 20, f"open files to be {before[0]} again")
    assert threads() <= before[1] + 12  # Go makes threads as it needs them, and keeps them
    if RELOADS >= 100:
        assert running.rss() < before[2] * 1.1 + 16e6
    mine = {p for p in set(pathlib.Path("/dev/shm").iterdir()) - shared if "shoal" in p.name and str(running.process.pid) in p.name}
    assert not mine, mine
