"""SimpleDBI's interface over our sessions, and that none of its defects are here (the numbers are those of the list in docs/sessions.md)."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import queue
import re
import shutil
import signal
import sys
import threading
import types

import numpy as np
import pytest

import models
import pymodels
import server as servers

sys.path.insert(0, str(pymodels.PACKAGE))
os.environ.setdefault("SHOAL", str(servers.BINARY))
os.environ.setdefault("SHOAL_ONNXRUNTIME_LIBRARY", servers.environment().get("SHOAL_ONNXRUNTIME_LIBRARY", ""))

import shoal  # noqa: E402
from SimpleDBI import _models, _server, context  # noqa: E402
from SimpleDBI.session import Run, Session  # noqa: E402

fork = multiprocessing.get_context("fork")


def make(name="test", path="none", rows=4, shape=(3, 8, 8), outputs=("output1",), **more) -> Session:
    more.setdefault("model_type", "mock")
    return Session(
        name, path, [{"name": "input1", "max_shape": [rows, *shape], "dtype": np.float32}],
        [{"name": n, "max_shape": [rows, 1000], "dtype": np.float32} for n in outputs], max_batch_size=rows, **more,
    )  # fmt: skip


def picture(rows=1, shape=(3, 8, 8)) -> np.ndarray:
    return np.random.rand(rows, *shape).astype(np.float32)


def told(results) -> list:
    """What the workers have put on the queue."""
    found = []
    while True:
        try:
            found.append(results.get(timeout=0.2))
        except queue.Empty:
            return found


def check(session: Session, x: np.ndarray) -> None:
    got = session.forward(x)
    assert isinstance(got, np.ndarray) and got.flags.writeable
    assert (got == x.reshape(len(x), -1)[:, :2]).all()


def caller(count: int, results) -> None:
    s = make()
    for rows in range(count):
        check(s, picture(rows % 4 + 1))
    results.put("ok")


def test_run_and_its_metrics():
    assert context.EXIT_SIG == -1
    results, metrics = fork.Queue(), fork.Queue(10_000)
    Run(caller, 6, metrics, args=(200, results))
    assert told(results) == ["ok"] * 6
    fields: dict[str, list[float]] = {}
    for m in told(metrics):
        health = {"model_handler_name": "test"} if "model_handler_health_value" in m["fields"] else {}
        assert m["tags"] == {"model": "test", **health}, "defect 8: metrics do not share their tags"
        for name, value in m["fields"].items():
            fields.setdefault(name, []).append(value)
    assert sum(fields["request_counter"]) == 6 * 500
    assert {"forward_cost", "input_tensor_qsize_value", "model_handler_health_value"} <= set(fields)
    assert not [f for f in os.listdir("/dev/shm") if "input1" in f], "defect 6: nothing is left"


def many_kinds(results) -> None:
    with pytest.raises(ValueError, match="max_batch_size is 4"):
        make().forward(picture(5))
    with pytest.raises(ValueError, match="max_shape"):
        make().forward(picture(1, (3, 9, 8)))
    with pytest.raises(ValueError, match="model_type is 'nothing'"):
        make("other", model_type="nothing")
    with pytest.raises(FileNotFoundError, match="none does not exist"):
        make("broken", model_type="onnx")
    with pytest.raises(RuntimeError, match="(?s)model 'broken' did not load: "):
        make("broken", path=__file__, model_type="onnx")
    # Defect 3: an error is raised, not an empty tuple.
    with pytest.raises(shoal.SessionError, match="1 outputs, and output_info names 2"):
        make("two", outputs=("a", "b")).forward(picture())
    # Tensors of TensorFlow's graphs have names such as this.
    named = Session("named", "none", [{"name": "scope-in", "max_shape": [4, 3], "dtype": np.float32}],
                    [{"name": "scope-out", "max_shape": [4, 2], "dtype": np.float32}], model_type="mock", max_batch_size=4, timeout=0.003)  # fmt: skip
    check(named, picture(2, (3,)))
    # Defect 4: sessions of one thread whose tensors have the same name.
    one, two = make("one"), make("second")
    x, y = picture(), picture()
    assert one.forward(x)[0, 0] == x[0, 0, 0, 0] and two.forward(y)[0, 0] == y[0, 0, 0, 0]
    # dynamic_batch=False is honoured: calls are not merged.
    alone = make("alone", dynamic_batch=False)
    assert alone._session.metadata["max_batch_size"] == 0
    check(alone, picture(3))
    # A timeout is how long a batch waits to be full.
    for name, micros in (("named", 3000), ("one", 10_000)):
        config = json.loads(_server.ask(os.environ[_server.FOLDER], "GET", f"/v2/models/{name}/config")[1])
        assert int(config["dynamic_batching"]["max_queue_delay_microseconds"]) == micros, config
        assert config["parameters"]["SHOAL_BATCHING"]["string_value"] == "fill", config
    results.put("ok")


@pytest.mark.parametrize("kind, package, load", [
    ("tf", "tensorflow", _models.tf), ("torch", "torch", _models.torch), ("tensorrt", "torch", _models.tensorrt), ("onnx2trt", "tensorrt", _models.engine),
])  # fmt: skip
def test_a_framework_that_is_missing_is_named(kind, package, load, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RuntimeError, match=f"model_type='{kind}' needs the package {package}"):
        load("none", 0)


class Graph:
    """TensorFlow's graphs, definitions and sessions, as far as a frozen graph needs them. The real one is not a dependency of the tests."""

    opened = 0

    def __init__(self, graph=None):
        Graph.opened += graph is not None

    def ParseFromString(self, data):
        assert data == b"graph"

    def as_default(self):
        return contextlib.nullcontext()

    def run(self, got, fed):
        assert got == ["scope/out:0"] and list(fed) == ["scope/in:0"]
        return [fed["scope/in:0"].sum((1, 2))]


def test_a_frozen_graph_is_loaded_once(tmp_path, monkeypatch):
    """Defect 5: the tensors' dicts are read, and one session of TensorFlow serves all calls."""
    v1 = types.SimpleNamespace(GraphDef=Graph, Graph=Graph, Session=Graph, import_graph_def=lambda definition, name: None)
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(compat=types.SimpleNamespace(v1=v1)))
    (tmp_path / "graph").write_bytes(b"graph")
    tensor = {"name": "scope-in", "dtype": "float32", "shape": [4, 3, 8, 8]}
    served = _models.model({"model_type": "tf", "path": str(tmp_path / "graph"), "name": "tf", "dynamic_batch": True, "duplicate_num": 1,
                            "max_batch_size": 4, "inputs": [tensor], "outputs": [{"name": "scope-out", "dtype": "float32", "shape": [4, 1000]}]})()  # fmt: skip
    served.context = types.SimpleNamespace(instance="tf_0")
    served.load()
    x = picture(2)
    for _ in range(3):
        assert np.allclose(served.predict(**{"scope-in": x}), x.sum((2, 3)), rtol=1e-5), "images come as NCHW, and the graph has NHWC"
    assert Graph.opened == 1


def test_instances_take_gpus_in_turn():
    """Defect 8: not only the first GPU."""
    library = types.SimpleNamespace(cuda=types.SimpleNamespace(device_count=lambda: 2))
    assert [_models._device(library, i) for i in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    library.cuda.device_count = lambda: 0
    assert _models._device(library, 1) == "cpu"


def reloaded(results) -> None:
    """Defect 8: versions, reloads and access control are the server's."""
    s, folder = make(), os.environ[_server.FOLDER]
    check(s, picture())
    assert os.stat(folder).st_mode & 0o077 == 0, "others cannot reach the sockets"
    shutil.copytree(os.path.join(folder, "models/test/1"), os.path.join(folder, "models/test/2"))
    status, body = _server.ask(folder, "POST", "/v2/repository/models/test/load", timeout=60)
    assert status == 200, body
    check(s, picture())
    found = json.loads(_server.ask(folder, "GET", "/v2/models/test")[1])
    assert found["versions"] == ["2"], found
    results.put("ok")


def test_a_model_is_loaded_anew_under_its_callers():
    results = fork.Queue()
    Run(reloaded, 1, args=(results,))
    assert told(results) == ["ok"]


def test_errors_are_raised_and_arguments_honoured():
    results = fork.Queue()
    Run(many_kinds, 1, args=(results,))
    assert told(results) == ["ok"]


def mixed(results, barrier, number) -> None:
    """Defect 1: shapes that differ, at the same time."""
    s = make(duplicate_num=1)
    for i in range(60):
        barrier.wait(20)
        check(s, picture(1, (3, 8, 8) if i % 2 else (3, 1 + (os.getpid() + i) % 8, 4)))
    results.put("ok")


def test_shapes_that_differ_meet_without_harm():
    results, barrier = fork.Queue(), fork.Barrier(4)
    Run(mixed, 4, args=(results, barrier, 0))
    assert told(results) == ["ok"] * 4


def survivors(results, crashed) -> None:
    """Defects 2 and 7: a model process that dies, a caller that dies."""
    s = make(name="test")
    check(s, picture())
    with crashed.get_lock():
        crashed.value += 1
        first = crashed.value == 1
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    pids = [int(p) for p in re.findall(r"(?m)^(\d+)", os.popen(f"pgrep -f {os.environ['SIMPLEDBI_SERVER']}").read())]
    workers = [p for p in pids if "model.py" in _command(p) or "python-" in _command(p)]
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    wanted = picture()

    def works() -> bool:
        try:
            check(s, wanted)
            return True
        except shoal.SessionError:
            return False  # the batch that was running

    servers.wait_until(works, 20, "the next model process")
    results.put("ok")


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


def test_processes_that_die():
    results, crashed = fork.Queue(), fork.Value("i", 0)
    with pytest.raises(RuntimeError, match="1 of 3 workers failed.*-9"):
        Run(survivors, 3, args=(results, crashed))
    assert told(results) == ["ok"] * 2


def many(results, ready, go) -> None:
    """Defect 9: a session costs the server two goroutines, not a thread."""
    sessions = [make() for _ in range(12)]
    for s in sessions:
        check(s, picture())
    ready.release()
    assert go.wait(30)
    results.put(threading.active_count())


def test_many_sessions_need_no_threads():
    results, ready, go = fork.Queue(), fork.Semaphore(0), fork.Event()
    threads: list[int] = []

    def look() -> None:
        for _ in range(4):
            ready.acquire(timeout=30)
        for pid in os.listdir("/proc"):
            command = _command(int(pid)) if pid.isdigit() else ""
            if "--stop-with-process=%d" % os.getpid() in command and "sdbi-" in command:
                threads.append(len(os.listdir(f"/proc/{pid}/task")))
        go.set()

    watcher = threading.Thread(target=look)
    watcher.start()
    Run(many, 4, args=(results, ready, go))
    watcher.join()
    assert told(results) == [1] * 4
    assert len(threads) == 1 and threads[0] < 40, threads


def onnx(path, results) -> None:
    s = Session("relu", path, [{"name": "INPUT0", "max_shape": [4, 3, 2], "dtype": np.float32}],
                [{"name": "OUTPUT0", "max_shape": [4, 3, 2], "dtype": np.float32}], model_type="onnx", max_batch_size=4)  # fmt: skip
    x = picture(2, (3, 2))
    assert (s.forward(x) == x).all()
    results.put("ok")


def test_an_onnx_model(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(models.identity("FP32", dims=(3, 2), max_batch_size=4).versions[1])
    results = fork.Queue()
    Run(onnx, 2, args=(str(path), results))
    assert told(results) == ["ok"] * 2


def test_a_session_outside_of_run_says_what_to_do():
    with pytest.raises(RuntimeError, match="SHOAL_SESSION_SOCKET"):
        make()
