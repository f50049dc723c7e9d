"""Callers over both protocols while their model is reloaded, resized and broken: no request may be lost.

SHOAL_RELOAD_SECONDS makes it longer (`make soak-reload`: a minute each) and SHOAL_RELOADS repeats plain reloads.
Each test prints its figures; `make soak-reload` shows them.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
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
import server
from server import wait_until
from test_control import connect, index, refused
from test_control import factor as multiplies

SECONDS = float(os.environ.get("SHOAL_RELOAD_SECONDS", 4))
RELOADS = int(os.environ.get("SHOAL_RELOADS", 4))
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

    def __init__(self, repository: pathlib.Path, kind: str, name: str = "scaled"):
        self.folder = repository / name
        self.kind = kind
        self.count = 1
        self.policy = "version_policy { all { } }\n"
        self.write(1, 2.0)
        self.configure()

    def write(self, version: int, factor: float) -> None:
        """Writes a version; the file appears at once and whole."""
        folder = self.folder / str(version)
        made = self.folder.parent / f".{self.folder.name}.{version}"
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


# A worker's memory keeps up to four places for batches that were in use at once, each of two times 1 MiB.
IDLE_SLOTS = 4 * 2 << 20


@dataclasses.dataclass
class State:
    """What the server's process holds."""

    rss: int
    files: int
    threads: int
    goroutines: int
    shared: int  # bytes that it shares with other processes

    @staticmethod
    def of(running: server.Server) -> State:
        proc = pathlib.Path(f"/proc/{running.process.pid}")
        profile = server.get(running.address("pprof"), "/debug/pprof/goroutine?debug=1").text
        mapped = re.findall(r"^(\w+)-(\w+) .* /(?:memfd:|dev/shm/)", (proc / "maps").read_text(), re.M)
        return State(
            rss=running.rss(),
            files=len(os.listdir(proc / "fd")),
            threads=len(os.listdir(proc / "task")),
            goroutines=int(re.match(r"goroutine profile: total (\d+)", profile).group(1)),
            shared=sum(int(end, 16) - int(begin, 16) for begin, end in mapped),
        )

    def __str__(self) -> str:
        return (
            f"{self.rss / 1e6:.1f} MB resident, {self.files} files, {self.threads} threads, {self.goroutines} goroutines, "
            f"{self.shared / 1e6:.1f} MB shared"
        )

    def most(self, other: State) -> State:
        return State(*map(max, zip(dataclasses.astuple(self), dataclasses.astuple(other))))

    def like(self, before: State) -> bool:
        """Whether it is what it was, but for memory. Go makes threads as it needs them, and keeps them."""
        return (
            self.files <= before.files + 2
            and self.goroutines <= before.goroutines + 5
            and self.threads <= before.threads + 12
            and self.shared <= before.shared + IDLE_SLOTS
        )


def held_again(running: server.Server, before: State, timeout: float = 20) -> State:
    """Waits until the server holds no more than before, and returns what it holds then."""
    now = before

    def like() -> State | None:
        nonlocal now
        now = State.of(running)
        return now if now.like(before) else None

    return wait_until(like, timeout, lambda: f"the server to hold what it held: {before}; it holds {now}")


def workers(running: server.Server) -> int:
    """How many child processes the server has."""
    count = 0
    for task in pathlib.Path(f"/proc/{running.process.pid}/task").iterdir():
        try:
            count += len((task / "children").read_text().split())
        except FileNotFoundError:  # a thread that has ended
            pass
    return count


class Callers:
    """Threads that ask without a pause and check every answer."""

    def __init__(self, running, factor: float):
        self.faults, self.answers, self._begun = [], 0, set()
        self._live = [{factor}]  # what the model may multiply by, now and earlier
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._call, args=(running, protocol), daemon=True)
            for protocol in ("http", "grpc")
            for _ in range(CALLERS)
        ]

    def change(self, factor: float) -> None:
        """From now on the model may multiply by another number too."""
        self._live.append(self._live[-1] | {factor})

    def settled(self, factor: float) -> None:
        """Requests from now on get this number and no other."""
        self._live.append({factor})

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        wait_until(lambda: self.faults or len(self._begun) == len(self._threads), 60, "an answer to each caller")
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
            began = len(self._live) - 1
            try:
                got = client.infer("scaled", inputs).as_numpy("OUTPUT0")
            except Exception as fault:
                self.faults.append(f"{protocol}: {fault}")
                return
            live = set().union(*self._live[began:])
            if float(got[0, 0]) not in live or not np.array_equal(got, ROW * got[0, 0]):
                self.faults.append(f"{protocol}: got {got}, want a multiple of {ROW} by one of {live}")
                return
            self.answers += 1
            self._begun.add(threading.get_ident())

    def assert_all_answered(self) -> None:
        assert not self.faults, "\n".join(self.faults[:5])
        assert self.answers > 10 * len(self._threads), "the callers got hardly any answers"


def start(serve, tmp_path: pathlib.Path, *flags: str) -> server.Server:
    return serve("--model-repository", tmp_path / "models", pymodels.PYTHON, "--pprof-address=127.0.0.1:0", *flags).wait_ready()


def report(kind: str, callers: Callers, reloads: int, before: State, after: State) -> None:
    """Prints what a run came to, and checks that it left the server as large as it was after its first changes."""
    print(f"{kind}: {2 * CALLERS} callers, {callers.answers} answers, {len(callers.faults)} failed, {reloads} changes\nbefore: {before}\nafter:  {after}")
    callers.assert_all_answered()
    assert after.like(before), f"{before} became {after}"
    if SECONDS >= 30:
        assert after.rss <= 1.1 * before.rss, f"{before} became {after}"


@pytest.mark.parametrize("kind", ["onnx", "python"])
def test_no_request_is_lost_while_a_model_is_loaded_again(serve, tmp_path, kind):
    model = Scaled(tmp_path / "models", kind)
    running = start(serve, tmp_path, "--model-control-mode=explicit", "--load-model=scaled")
    control, _ = connect(running, "grpc")
    end = time.monotonic() + SECONDS
    turns = 0
    with Callers(running, 2.0) as callers:

        def turn(first: float) -> None:
            callers.change(first)
            model.write(1, first)
            control.load_model("scaled")
            callers.settled(first)
            for model.count in (3, 2, 1):
                model.configure()
                control.load_model("scaled")
            callers.change(4.0)
            model.write(2, 4.0)
            control.load_model("scaled")
            callers.settled(4.0)
            model.configure("input {")
            assert "config.pbtxt" in refused(control.load_model, "scaled")[1]
            model.configure()
            callers.change(first)
            model.remove(2)
            control.load_model("scaled")
            callers.settled(first)

        before = None
        while time.monotonic() < end or turns < 2:
            turns += 1
            turn(3.0 if turns % 2 else 2.0)
            if time.monotonic() < end - SECONDS * 5 / 6 or not before:
                wait_until(lambda: workers(running) == (kind == "python"), 20, "the old workers to end")
                before = State.of(running)
        wait_until(lambda: workers(running) == (kind == "python"), 20, "the old workers to end")
        after = held_again(running, before)
    reloads = 7 * turns
    report(kind, callers, reloads, before, after)
    assert index(control)[0] == {"name": "scaled", "version": "1", "state": "READY"}
    assert reloads >= (40 if SECONDS >= 30 else 7)


@pytest.mark.parametrize("kind", ["onnx", "python"])
def test_no_request_is_lost_under_poll(serve, tmp_path, kind):
    model = Scaled(tmp_path / "models", kind)
    running = start(serve, tmp_path, "--model-control-mode=poll", "--repository-poll-secs=1")
    control, _ = connect(running, "grpc")

    def lines(want: dict[str, str]) -> bool:
        return {m["version"]: m["state"] for m in index(control) if m["state"] != "UNAVAILABLE"} == want

    end = time.monotonic() + SECONDS
    turns = 0
    with Callers(running, 2.0) as callers:
        before = None
        while time.monotonic() < end or turns < 1:
            turns += 1
            model.count = 1 + turns % 3
            model.configure()
            running.wait_for_log(f"instances changed.*instances={model.count} ")
            model.configure("nonsense")
            wait_until(lambda: index(control)[0].get("reason"), 20, "the bad configuration to be seen")
            model.configure()
            wait_until(lambda: not index(control)[0].get("reason"), 20, "the good one to be seen")
            callers.change(4.0)
            model.write(2, 4.0)
            wait_until(lambda: lines({"1": "READY", "2": "READY"}), 30, "version 2")
            callers.settled(4.0)
            callers.change(2.0)
            model.remove(2)
            wait_until(lambda: lines({"1": "READY"}), 30, "version 2 to go")
            callers.settled(2.0)
            wait_until(lambda: workers(running) == (model.count if kind == "python" else 0), 20, "the old workers to end")
            if turns <= 3:  # once with each count of instances
                before = State.of(running).most(before or State.of(running))
        after = held_again(running, before)
    report(kind, callers, 5 * turns, before, after)


@pytest.mark.parametrize("mode, kinds", [("explicit", ["onnx"]), ("explicit", ["python"]), ("poll", ["onnx"] * 4 + ["python"] * 4)])
def test_reloads_leave_nothing_behind(serve, tmp_path, mode, kinds):
    """Memory, files, threads and processes are after many reloads what they were after some."""
    named = {f"scaled{i}": Scaled(tmp_path / "models", kind, f"scaled{i}") for i, kind in enumerate(kinds)}
    running = start(serve, tmp_path, f"--model-control-mode={mode}", *(["--load-model=*"] if mode == "explicit" else ["--repository-poll-secs=1"]))
    control, _ = connect(running, "grpc")

    def reload(n: int) -> None:
        for i in range(max(1, n // (len(kinds) // len(set(kinds))))):
            factor = 3.0 + i % 2
            for model in named.values():
                model.write(1, factor)
            for name in named:
                if mode == "explicit":
                    control.load_model(name)
                wait_until(lambda: multiplies(control, name) == factor, 30, f"{name} to multiply by {factor}")

    reload(RELOADS // 4)
    wait_until(lambda: workers(running) == kinds.count("python"), 20, "the old workers to end")
    before = State.of(running)
    reload(RELOADS)
    wait_until(lambda: workers(running) == kinds.count("python"), 20, "the old workers to end")
    after = held_again(running, before, 30)
    print(f"{mode} {' '.join(kinds)}: {RELOADS} reloads of each kind\nbefore: {before}\nafter:  {after}")
    if RELOADS >= 100:
        assert after.rss <= 1.1 * before.rss, f"{before} became {after}"
    mine = [p.name for p in pathlib.Path("/dev/shm").iterdir() if "shoal" in p.name and str(running.process.pid) in p.name]
    assert not mine, mine
