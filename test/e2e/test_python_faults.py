"""What a Python model does wrong, it does to its own batch only, and the client is told what it was."""

from __future__ import annotations

import collections
import datetime
import json
import os
import signal
import threading
import time

import pytest
import tritonclient.grpc
import tritonclient.http
from geventhttpclient.response import HTTPConnectionClosed
from tritonclient.utils import InferenceServerException

import faults
import models
import pipelines
import pymodels
from faults import ask
from server import LOOPBACK, PORTS, Server, get, post, wait_until

LOAD = 0.2  # seconds that a breakable model takes to load, where that matters


def refused(server, act: str, **more) -> InferenceServerException:
    with pytest.raises(InferenceServerException) as caught:
        ask(server, act, **more)
    return caught.value


@pytest.fixture(scope="module")
def breaker(tmp_path_factory):
    """A server with a model to break and one beside it."""
    repository = models.write(
        tmp_path_factory.mktemp("repository"),
        faults.breakable(timeout=1),
        faults.breakable("bystander"),
    )
    with Server(
        "--model-repository", repository, "--backend-config=python,max-result-byte-size=1000000", *PORTS, *LOOPBACK
    ) as server:
        server.wait_ready()
        yield server
        assert server.process.poll() is None, f"the server died:\n{server.log}"


DEADLY = [
    ("exit", "ended with exit code 3", "about to leave"),
    ("segfault", "killed by signal 11 (SIGSEGV)", ""),
    ("loop", "the batch took longer than the execution timeout of 1s", ""),
]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("act, reason, last", DEADLY, ids=[d[0] for d in DEADLY])
def test_a_worker_that_dies_fails_its_batch_with_the_reason(breaker, act, reason, last, protocol):
    _, before = ask(breaker)
    _, bystander = ask(breaker, model="bystander")
    begin = time.monotonic()
    error = refused(breaker, act, protocol=protocol)
    took = time.monotonic() - begin
    for want in ("breakable", "breakable_0", reason, last):
        assert want in error.message(), f"got {error.message()!r}, want {want!r} in it"
    assert took < (1 if act == "loop" else 0) + 5
    value, after = ask(breaker, value=41)  # served by a new worker
    assert value == 42 and after != before
    assert not faults.alive(before)
    assert ask(breaker, model="bystander")[1] == bystander


def test_a_worker_that_closes_its_pipes_is_replaced(breaker):
    _, before = ask(breaker)
    value, by = ask(breaker, "close", value=41)  # the answer was complete, if its end was not
    assert (value, by) == (42, before)
    value, after = ask(breaker, value=42)
    assert value == 43 and after != before
    assert not faults.alive(before)
    breaker.wait_for_log("worker died and is started again.*Bad file descriptor")


def test_a_child_that_the_model_forks_does_not_answer_in_its_place(breaker):
    _, before = ask(breaker)
    for number in range(5):
        assert ask(breaker, "fork", value=number) == (number + 1, before)
    assert ask(breaker, value=41) == (42, before)


def test_a_server_without_a_home_unpacks_its_worker_elsewhere(tmp_path):
    repository = models.write(tmp_path / "repository", faults.breakable())
    env = {"HOME": "", "XDG_CACHE_HOME": "", "TMPDIR": str(tmp_path)}
    with Server("--model-repository", repository, *PORTS, *LOOPBACK, env=env) as server:
        server.wait_ready()
        assert ask(server, value=41)[0] == 42
    assert (tmp_path / f"shoal-{os.getuid()}").is_dir()


WRONG = [
    ("raise", "ValueError: no such luck"),
    ("few", ""),
    ("many", ""),
    ("none", ""),
    ("large", "1000000"),
]


@pytest.mark.parametrize("act, wanted", WRONG, ids=[w[0] for w in WRONG])
def test_a_wrong_answer_is_an_error_and_the_worker_lives(breaker, act, wanted):
    _, before = ask(breaker)
    error = refused(breaker, act)
    assert wanted in error.message(), f"got {error.message()!r}, want {wanted!r} in it"
    value, after = ask(breaker, value=1)
    assert value == 2
    assert after == before, f"the worker was replaced; the client was told {error.message()!r}"


@pytest.mark.parametrize("act, shape, dtype", [("shape", (1, 3), "float32"), ("rows", (2, 1), "float32"), ("type", (1, 1), "int64")])
@pytest.mark.parametrize("protocol", [tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
def test_an_output_that_is_not_as_configured_is_answered_as_it_is(breaker, protocol, act, shape, dtype):
    """As by Triton, whose models rely on it."""
    address = breaker.http if protocol is tritonclient.http else breaker.grpc
    with protocol.InferenceServerClient(address) as client:
        got = client.infer("breakable", faults.inputs(protocol, act, 1)).as_numpy("NEXT")
    assert (got.shape, got.dtype) == (shape, dtype)


def test_an_ensemble_answers_outputs_that_are_not_as_configured(tmp_path):
    """With a batch dimension and without one, where a row alone loses it."""
    act, value = models.Tensor("ACT", "BYTES", (1,)), models.Tensor("VALUE", "FP32", (1,))
    step = ("breakable", {"ACT": "ACT", "VALUE": "VALUE"}, {"NEXT": "NEXT"})
    rows = [models.Tensor("ACT", "BYTES", (-1, 1)), models.Tensor("VALUE", "FP32", (-1, 1))]
    repository = models.write(
        tmp_path / "repository",
        faults.breakable(),
        pipelines.ensemble("batching", [act, value], [models.Tensor("NEXT", "FP32", (1,))], step, batch=4),
        pipelines.ensemble("whole", rows, [models.Tensor("NEXT", "FP32", (1,))], step, batch=0),
        pipelines.ensemble("reshaped", [act, value], [models.Tensor("NEXT", "FP32", (1, 1), "reshape { shape: [1] } ")], step, batch=4),
    )
    with Server("--model-repository", repository, *PORTS, *LOOPBACK) as server, tritonclient.http.InferenceServerClient(server.wait_ready().http) as client:
        for name, wish, shape in [
            ("batching", "", (1, 1)), ("batching", "shape", (1, 3)), ("batching", "rows", (2, 1)),
            ("whole", "", (1,)), ("whole", "shape", (3,)), ("whole", "rows", (2, 1)),
            ("reshaped", "", (1, 1, 1)), ("reshaped", "shape", (1, 3)), ("reshaped", "rows", (2, 1, 1)),
        ]:  # fmt: skip
            got = client.infer(name, faults.inputs(tritonclient.http, wish, 1)).as_numpy("NEXT")
            assert got.shape == shape, f"{name}, {wish or 'as configured'}"


def test_an_exception_is_in_the_log_with_its_traceback(breaker):
    refused(breaker, "raise")
    breaker.wait_for_log("Traceback")
    breaker.wait_for_log("no such luck")


UNLOADABLE = {
    "import_error": ("import no_such_module_at_all\n", "No module named 'no_such_module_at_all'"),
    "syntax_error": ("class TritonPythonModel:\n    def execute(self requests):\n        pass\n", "SyntaxError"),
    "raises_in_initialize": (
        """
        class TritonPythonModel:
            def initialize(self, args):
                raise RuntimeError("the weights are gone")

            def execute(self, requests):
                return []
        """,
        "the weights are gone",
    ),
    "exits_at_start": ("import os, sys\nprint('farewell', file=sys.stderr, flush=True)\nos._exit(7)\n", "exit code 7"),
}


def test_models_that_do_not_load_are_failed_with_their_traceback(serve):
    wanted = [faults.unloadable(name, source) for name, (source, _) in UNLOADABLE.items()]
    server = serve("--exit-on-error=false", wanted=(*wanted, faults.breakable()))
    server.wait_for_log("protocol=http")
    wait_until(lambda: get(server.http, "/v2/models/breakable/ready").status == 200, 30, "the good model")
    index = {m["name"]: m for m in json.loads(post(server.http, "/v2/repository/index").text)}
    for name, (_, reason) in UNLOADABLE.items():
        assert index[name]["state"] == "UNAVAILABLE"
        assert reason in index[name]["reason"], f"got {index[name]['reason']!r}, want {reason!r} in it"
        if name in ("import_error", "raises_in_initialize"):
            assert "model.py(" in index[name]["reason"], "the place in the code is missing"
        assert get(server.http, f"/v2/models/{name}/ready").status != 200
    assert index["breakable"]["state"] == "READY"
    assert ask(server, value=1)[0] == 2
    assert len(faults.children(server.process.pid)) == 1, "a failed model left a worker"


class Callers:
    """Callers that ask without pause until they are told to stop, and what they were answered."""

    def __init__(self, server, count: int, act: str = ""):
        self.server, self.act = server, act
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.good: list[tuple[float, int]] = []  # when, and by whom
        self.bad: list[str] = []
        self.threads = [threading.Thread(target=self.ask, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def ask(self, number: int) -> None:
        with tritonclient.http.InferenceServerClient(self.server.http, network_timeout=60) as client:
            value = number * 10000
            while not self.over.is_set():
                value += 1
                try:
                    got, pid = faults.read(client.infer("breakable", faults.inputs(tritonclient.http, self.act, value)))
                except (InferenceServerException, OSError) as error:
                    with self.lock:
                        self.bad.append(str(error))
                    continue
                with self.lock:
                    self.good.append((time.time(), pid))
                    if got != value + 1:
                        self.bad.append(f"asked for {value} + 1, got {got}")

    def pids(self) -> set[int]:
        with self.lock:
            return {pid for _, pid in self.good}

    def stop(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "an answer is lost"


@pytest.mark.parametrize("count", [1, 2])
def test_a_killed_worker_fails_only_its_own_batch(serve, count):
    server = serve(wanted=(faults.breakable(count=count, load=LOAD),)).wait_ready()
    callers = Callers(server, 20)
    try:
        first = wait_until(lambda: len(callers.pids()) >= count and callers.pids(), 30, "all workers to answer")
        victim = min(first)
        os.kill(victim, signal.SIGKILL)
        killed = time.time()
        wait_until(lambda: callers.pids() - first, 30, "a new worker to answer")
        with callers.lock:
            back = min(when for when, pid in callers.good if pid not in first) - killed
    finally:
        callers.stop()
    assert len(callers.bad) <= 4, f"more than one batch of 4 failed: {callers.bad}"
    for text in callers.bad:
        assert "breakable_0" in text and "killed by signal 9 (SIGKILL)" in text
    load = logged_at(server, "worker is back") - logged_at(server, "worker died and is started again.* in=0s")
    assert LOAD <= load < back + 0.1
    assert back < load + 0.5, f"back after {back:.2f} s, of which {load:.2f} s to load"
    stats = json.loads(get(server.http, "/v2/models/breakable/stats").text)["model_stats"][0]["inference_stats"]
    assert stats["success"]["count"] == len(callers.good)
    assert stats["fail"]["count"] == len(callers.bad)


def logged_at(server, pattern: str) -> float:
    """When the server logged the first line that matches."""
    stamp = server.wait_for_log(rf"time=(\S+) .*{pattern}").group(1)
    return datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def test_a_model_that_cannot_start_again_is_told_at_once_and_tried_again(serve, repository):
    folder = repository(faults.breakable())
    server = serve("--model-repository", folder).wait_ready()
    broken = folder / "breakable" / "1" / "broken"
    broken.write_text("")
    refused(server, "exit")
    error = wait_until(lambda: quick_refusal(server), 30, "an error that says that the worker is not there")
    assert "breakable_0" in error and "the file that breaks it is there" in error
    assert get(server.http, "/v2/models/breakable/ready").status != 200
    (entry,) = json.loads(post(server.http, "/v2/repository/index").text)
    assert entry["state"] == "UNAVAILABLE" and "the file that breaks it is there" in entry["reason"]
    broken.unlink()
    wait_until(lambda: answered(server), 30, "the worker to be back")
    assert get(server.http, "/v2/models/breakable/ready").status == 200
    (entry,) = json.loads(post(server.http, "/v2/repository/index").text)
    assert entry["state"] == "READY"


def quick_refusal(server) -> str:
    begin = time.monotonic()
    error = refused(server, "").message()
    assert time.monotonic() - begin < 10
    return error if "not available" in error else ""


def answered(server) -> bool:
    try:
        return ask(server, value=1)[0] == 2
    except InferenceServerException:
        return False


def test_restarts_leak_nothing(serve):
    server = serve(wanted=(faults.breakable(),)).wait_ready()
    pid = server.process.pid

    def restart(times: int) -> None:
        for _ in range(times):
            refused(server, "exit")
            ask(server)

    restart(3)
    files, maps, rss = faults.open_files(pid), faults.mapped_memfds(pid), server.rss()
    restart(int(os.environ.get("SHOAL_RESTARTS", "8")))
    assert len(faults.children(pid)) == 1
    assert faults.open_files(pid) <= files + 3
    assert faults.mapped_memfds(pid) <= maps + 2
    assert server.rss() <= rss + (32 << 20)


def test_workers_end_with_a_server_that_is_killed(serve):
    server = serve(wanted=(faults.breakable(count=2),)).wait_ready()
    workers = faults.children(server.process.pid)
    assert len(workers) == 2
    caller = threading.Thread(target=lambda: swallow(lambda: ask(server, "sleep")))
    caller.start()
    server.signal(signal.SIGKILL)
    server.wait()
    wait_until(lambda: not any(map(faults.alive, workers)), 1, "the workers' end")
    caller.join()


def swallow(act) -> None:
    try:
        act()
    except (InferenceServerException, OSError, HTTPConnectionClosed):
        pass


def test_a_server_that_ends_under_load_loses_nothing(serve, tmp_path):
    server = serve(wanted=(faults.breakable(count=2),)).wait_ready()
    workers = faults.children(server.process.pid)
    gate = tmp_path / "gate"
    calls: collections.Counter = collections.Counter()

    def call(number: int) -> None:
        got, _ = ask(server, f"hold {gate}", value=number, protocol="grpc" if number % 2 else "http")
        calls["good" if got == number + 1 else "wrong"] += 1

    threads = [threading.Thread(target=call, args=(i,)) for i in range(16)]
    for started, thread in enumerate(threads[:2], 1):  # one by one, so that each worker holds one
        thread.start()
        wait_until(lambda wanted=started: faults.held(gate) == wanted, 20, "a worker that holds its request")
    for thread in threads[2:]:
        thread.start()
    wait_until(lambda: queued(server) == 14, 20, "14 requests behind them")
    server.signal(signal.SIGTERM)
    server.wait_for_log("stopping: finishing what is in flight")
    gate.touch()
    for thread in threads:
        thread.join(60)
    assert server.wait(30) == 0, server.log
    assert calls == {"good": 16}, server.log
    assert not any(map(faults.alive, workers))


def queued(server) -> int:
    """How many requests wait for a worker."""
    text = get(server.metrics, "/metrics").text
    pending = [l for l in text.splitlines() if l.startswith("nv_inference_pending_request_count{")]
    return int(float(pending[0].split()[-1])) if pending else 0


SLOW = """
import os, time

if WHERE == "import":
    time.sleep(600)


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        if WHERE == "auto_complete_config":
            time.sleep(600)
        return config

    def initialize(self, args):
        time.sleep(600)
"""


@pytest.mark.parametrize("where, named", [
    ("import", "the import of model.py"),
    ("auto_complete_config", "auto_complete_config of model.py"),
    ("initialize", "the initialization of the model in model.py"),
])  # fmt: skip
def test_what_takes_too_long_at_the_start_is_named(tmp_path, where, named):
    config = """
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }
    """ + models.parameter("SHOAL_START_TIMEOUT_SECONDS", 2)
    path = pymodels.write(tmp_path / "repository", "late", f"WHERE = {where!r}\n{SLOW}", config)
    with pymodels.serve(path) as server:
        assert server.wait(30) == 1
        want = f"{named} took more than 2s; raise the model's parameter SHOAL_START_TIMEOUT_SECONDS"
        assert want in server.log, server.log
