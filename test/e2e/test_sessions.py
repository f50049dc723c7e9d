"""Sessions over shared memory: shoal.Session against the built binary."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest

import models
import pymodels
from server import BINARY, LOOPBACK, PORTS, ROOT, Server, get, wait_until

sys.path.insert(0, str(pymodels.PACKAGE))

import shoal  # noqa: E402
from shoal._session import ServerGone  # noqa: E402

PYTHON_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for r in requests:
            x = pb_utils.get_input_tensor_by_name(r, "x").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", x * 2), pb_utils.Tensor("rows", np.array([[len(requests)]] * len(x), np.int64))]))
        return answers
"""
PYTHON_CONFIG = """
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "rows" data_type: TYPE_INT64 dims: [ 1 ] } ]
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    repository = models.write(
        tmp_path_factory.mktemp("repository"),
        models.slow("plain", 0, count=4),
        models.identity("BYTES", name="text", dims=(-1,)),
        models.add_sub("INT32", name="both"),
        models.with_extra(models.slow("slow", 100, max_batch_size=4), "dynamic_batching { }\n"),
        models.slow("stuck", 1500),
    )
    pymodels.write(repository, "double", PYTHON_MODEL, PYTHON_CONFIG)
    with tempfile.TemporaryDirectory(prefix="s") as folder:  # a socket's path must be short
        socket = os.path.join(folder, "s")
        with Server("--model-repository", repository, "--session-socket", socket, *PORTS, *LOOPBACK) as server:
            server.wait_ready()
            server.socket = socket
            yield server
            assert server.process.poll() is None, f"the server died:\n{server.log}"


@pytest.fixture
def session(running):
    made = []

    def open_session(model, **more):
        made.append(shoal.Session(model, running.socket, **more))
        return made[-1]

    yield open_session
    for s in made:
        s.close()


def metric(server, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", get(server.metrics, "/metrics").text, re.M)
    assert found, name
    return float(found.group(1))


def test_an_answer_is_shared_memory_and_stays_while_it_is_used(session):
    s = session("plain")
    first = s.run(INPUT0=np.arange(4, dtype=np.float32))
    part = first[1:3]
    more = [s.run(INPUT0=np.full(4, i, np.float32)) for i in range(20)]
    assert not first.flags.owndata and not first.flags.writeable
    assert first.tolist() == [0, 1, 2, 3] and [m[0] for m in more] == list(range(20))
    slots = s._link.slots
    del first, more
    for i in range(50):
        s.run(INPUT0=np.full(4, i, np.float32))
    assert part.tolist() == [1, 2], "a part of an answer keeps its memory"
    assert s._link.slots == slots, "memory is used again when an answer is no longer used"
    own = s.run(INPUT0=np.ones(4, np.float32), copy=True)
    assert own.flags.owndata and own.flags.writeable


def test_inputs_and_outputs_by_name_shapes_that_differ_and_growth(session):
    s = session("both")
    a, b = np.arange(32, dtype=np.int32).reshape(2, 16), np.ones((2, 16), np.int32)
    got = s.run(INPUT0=a, INPUT1=b)
    assert (got["OUTPUT0"] == a + b).all() and (got["OUTPUT1"] == a - b).all()
    assert (s.run({"INPUT1": b, "INPUT0": a}, outputs=["OUTPUT1"]) == a - b).all()
    assert s.run(INPUT0=[[1] * 16], INPUT1=[[2] * 16])["OUTPUT0"].tolist() == [[3] * 16]
    p = session("plain")
    for size in (1, 16, 1, 300_000, 0, 100_000, 3):
        x = np.random.rand(size).astype(np.float32)
        assert (p.run(INPUT0=x) == x).all()
    turned = np.arange(20, dtype=np.float32)[::-2]
    assert (p.run(INPUT0=turned) == turned).all()
    assert (p.run(INPUT0=np.arange(3, dtype=np.float64)) == [0, 1, 2]).all()
    assert p.metadata["inputs"] == [{"name": "INPUT0", "datatype": "FP32", "shape": [-1]}]


def test_strings(session):
    s = session("text")
    assert s.run(INPUT0=np.array(["a", "", "häuser"], dtype=object)).tolist() == [b"a", b"", "häuser".encode()]
    assert s.run(INPUT0=[b"\0\1", b"x" * 100_000]).tolist() == [b"\0\1", b"x" * 100_000]


def test_every_answer_has_its_parameters(session):
    with_parameters, without = session("plain"), session("text")
    for size in (4, 4, 4, 8, 4):  # the slot of an answer is used again, and what was read of it
        call = with_parameters.submit(INPUT0=np.zeros(size, np.float32))
        assert call.result().shape == (size,)
        assert call.parameters == {"param0": "an example string parameter", "param1": 42, "param2": False, "param3": 123.123}
        call = without.submit(INPUT0=np.array(["word"] * size, object))
        assert call.result().shape == (size,) and call.parameters == {}
        del call


def test_a_python_model(session):
    s = session("double")
    got = s.run(x=np.ones((3, 5), np.float32))
    assert (got["y"] == 2).all() and got["rows"].shape == (3, 1)


def test_errors_say_what_is_wrong(session, running):
    s = session("plain")
    with pytest.raises(shoal.SessionError, match="unexpected inference input 'X'") as caught:
        s.run(X=np.ones(3, np.float32))
    assert caught.value.code == "INVALID_ARG"
    with pytest.raises(TypeError, match="int64.*FP32|FP32"):
        s.run(INPUT0=np.ones(3, np.complex64))
    with pytest.raises(shoal.SessionError, match="unknown model"):
        session("nothing")
    with pytest.raises(shoal.SessionError, match="shoal serve --session-socket"):
        shoal.Session("plain", running.socket + "x")
    with pytest.raises(ValueError, match="SHOAL_SESSION_SOCKET"):
        shoal.Session("plain")
    assert s.run(INPUT0=np.ones(3, np.float32)).tolist() == [1, 1, 1]
    s.close()
    with pytest.raises(shoal.SessionError, match="closed"):
        s.run(INPUT0=np.ones(3, np.float32))


def test_calls_in_flight_and_threads_meet_in_batches(session, running):
    s = session("slow")
    calls = [s.submit(INPUT0=np.full((1, 2), i, np.float32)) for i in range(8)]
    answers: dict[int, float] = {}

    def work(i: int) -> None:
        answers[i] = s.run(INPUT0=np.full((1, 2), i, np.float32))[0, 0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    assert [c.result()[0, 0] for c in calls] == list(range(8))
    for t in threads:
        t.join()
    assert answers == {i: i for i in range(8)}
    stats = json.loads(get(running.http, "/v2/models/slow/stats").text)["model_stats"][0]
    assert stats["inference_count"] >= 16 and stats["execution_count"] < stats["inference_count"], stats


def test_asyncio(session):
    s = session("slow")
    p = session("plain")

    async def call(i: int) -> float:
        return (await s.submit(INPUT0=np.full((1, 2), i, np.float32)))[0, 0]

    async def main() -> None:
        assert await asyncio.gather(*(call(i) for i in range(12))) == list(range(12))
        for i in range(50):
            assert (await p.submit(INPUT0=np.full(3, i, np.float32))).tolist() == [i] * 3
        late = asyncio.ensure_future(call(1))
        await asyncio.sleep(0)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late

    asyncio.run(main())
    assert s.run(INPUT0=np.ones((1, 2), np.float32)).tolist() == [[1, 1]]


def test_timeouts_and_cancellation(session, running):
    with pytest.raises(TimeoutError, match="stuck gave no answer within 0.01 s"):
        session("stuck").run(INPUT0=np.ones(2, np.float32), timeout=0.01)
    s = session("slow")
    calls = [s.submit(INPUT0=np.ones((4, 2), np.float32)) for _ in range(4)]
    calls[3].cancel()
    with pytest.raises(shoal.SessionError, match="cancelled"):
        calls[3].result()
    assert all(c.result().shape == (4, 2) for c in calls[:3])
    wait_until(lambda: not s._link.given_up or s._link.take() and not s._link.given_up, 10, "the slots of calls that were given up")


def _child(session, queue, wanted) -> None:
    queue.put(session.run(INPUT0=np.full(3, wanted, np.float32)).tolist())


def test_a_child_opens_its_own(session, running):
    s = session("plain")
    s.run(INPUT0=np.ones(3, np.float32))
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    children = [fork.Process(target=_child, args=(s, queue, i)) for i in range(3)]
    for c in children:
        c.start()
    assert s.run(INPUT0=np.ones(3, np.float32)).tolist() == [1, 1, 1]
    assert sorted(queue.get(timeout=20) for _ in children) == [[i] * 3 for i in range(3)]
    for c in children:
        c.join(20)
        assert c.exitcode == 0
    assert s.run(INPUT0=np.ones(3, np.float32)).tolist() == [1, 1, 1]


def _busy(path, started) -> None:
    s = shoal.Session("slow", path)
    calls = [s.submit(INPUT0=np.ones((4, 2), np.float32)) for _ in range(8)]
    started.set()
    calls[-1].result()


def test_a_killed_client_costs_nobody_anything(session, running):
    s = session("slow")
    spawn = multiprocessing.get_context("fork")
    wait_until(lambda: metric(running, "shoal_sessions") == 1, 10, "the end of other tests' sessions")
    s.run(INPUT0=np.ones((1, 2), np.float32))
    before = metric(running, "shoal_session_bytes")
    started = spawn.Event()
    client = spawn.Process(target=_busy, args=(running.socket, started))
    client.start()
    assert started.wait(20)
    os.kill(client.pid, signal.SIGKILL)
    client.join()
    assert s.run(INPUT0=np.ones((1, 2), np.float32)).tolist() == [[1, 1]]
    wait_until(lambda: metric(running, "shoal_sessions") == 1, 10, "the end of the killed client's session")
    assert metric(running, "shoal_session_bytes") == before


def test_a_server_that_dies_is_an_error_and_the_next_one_goes_on(repository):
    with tempfile.TemporaryDirectory(prefix="s") as folder:
        flags = ("--model-repository", repository(models.slow("slow", 60_000, max_batch_size=1), models.slow("plain", 0)),
                 "--session-socket", os.path.join(folder, "s"), *PORTS, *LOOPBACK)  # fmt: skip
        with Server(*flags) as first:
            first.wait_ready()
            s = shoal.Session("slow", os.path.join(folder, "s"))
            again = shoal.Session("plain", os.path.join(folder, "s"), reconnect=True, timeout=20)
            again.run(INPUT0=np.ones(2, np.float32))
            errors: list[tuple[float, Exception]] = []

            def call() -> None:
                try:
                    s.run(INPUT0=np.ones((1, 2), np.float32))
                except Exception as error:
                    errors.append((time.monotonic(), error))

            async def acall() -> None:
                try:
                    await s.submit(INPUT0=np.ones((1, 2), np.float32))
                except Exception as error:
                    errors.append((time.monotonic(), error))

            threads = [threading.Thread(target=call) for _ in range(4)]
            threads.append(threading.Thread(target=lambda: asyncio.run(acall())))
            for t in threads:
                t.start()
            wait_until(lambda: s._link.live == 5, 10, "five calls in flight")
            killed = time.monotonic()
            first.process.kill()
            for t in threads:
                t.join(20)
            assert len(errors) == 5 and all(isinstance(e, ServerGone) for _, e in errors), errors
            assert max(at for at, _ in errors) - killed < 2, "100 ms on a machine that has time"
        with pytest.raises(ServerGone):
            s.run(INPUT0=np.ones((1, 2), np.float32))
        with Server(*flags) as second:
            second.wait_ready()
            assert again.run(INPUT0=np.ones(2, np.float32)).tolist() == [1, 1]
            again.close()
            s.close()
            second.signal()
            assert second.wait() == 0
        assert not os.path.exists(os.path.join(folder, "s"))


def test_flags_of_sessions_and_traces(serve):
    with tempfile.TemporaryDirectory(prefix="s") as folder:
        path, traces = os.path.join(folder, "s"), os.path.join(folder, "trace")
        tracing = [f"--trace-config={s}" for s in (f"triton,file={traces}", "level=TIMESTAMPS", "rate=1", "count=2")]
        server = serve("--session-socket", path, "--session-socket-mode=0660", "--session-max-bytes=300000", *tracing, wanted=(models.slow("plain", 0),))
        server.wait_ready()
        assert os.stat(path).st_mode & 0o777 == 0o660
        s = shoal.Session("plain", path)
        with pytest.raises(shoal.SessionError, match="unexpected inference input 'X'"):
            s.run(X=np.ones(4, np.float32))
        assert s.run(INPUT0=np.ones(4, np.float32), id="one").tolist() == [1] * 4
        wait_until(lambda: os.path.exists(traces + ".0") and "SESSION_SEND_END" in open(traces + ".0").read(), 10, "the traces")
        found = json.load(open(traces + ".0"))
        names = [t["name"] for entry in found if entry["id"] == 2 for t in entry.get("timestamps", ())]
        assert names[:3] == ["SESSION_RECV_START", "SESSION_RECV_END", "REQUEST_START"] and names[-1] == "SESSION_SEND_END", names
        assert [e["request_id"] for e in found if e["id"] == 2 and "model_name" in e] == ["one"]
        with pytest.raises(shoal.SessionError, match="--session-max-bytes") as caught:
            s.run(INPUT0=np.ones(100_000, np.float32))
        assert caught.value.code == "RESOURCE_EXHAUSTED"
        kept = []
        with pytest.raises(shoal.SessionError, match="--session-max-bytes"):
            for _ in range(10):
                kept.append(s.run(INPUT0=np.ones(4, np.float32)))
        kept.clear()
        assert s.run(INPUT0=np.ones(4, np.float32)).tolist() == [1] * 4
        s.close()


def _calls(path, answered, i, seed) -> None:
    s = shoal.Session("plain", path)
    rng = np.random.default_rng(seed)
    while True:
        x = rng.random(int(rng.integers(1, 50_000)), np.float32)
        if not (s.run(INPUT0=x) == x).all():
            os._exit(1)
        answered[i] += 1


def test_clients_that_are_killed_at_random(repository):
    """Two seconds of a few clients; make soak-sessions has ten minutes of 64, with the race detector."""
    seconds, count = float(os.environ.get("SHOAL_SESSION_SECONDS", 2)), int(os.environ.get("SHOAL_SESSION_CLIENTS", 6))
    fork = multiprocessing.get_context("fork")
    answered = fork.Array("q", count, lock=False)
    with tempfile.TemporaryDirectory(prefix="s") as folder:
        path = os.path.join(folder, "s")
        flags = ("--model-repository", repository(models.slow("plain", 0, count=2)), "--session-socket", path, *PORTS, *LOOPBACK)
        with Server(*flags) as server:
            server.wait_ready()
            get(server.metrics, "/metrics")
            files = len(os.listdir(f"/proc/{server.process.pid}/fd"))

            def start(i: int, seed: int):
                p = fork.Process(target=_calls, args=(path, answered, i, seed))
                p.start()
                return p

            clients = [start(i, i) for i in range(count)]
            killed = 0
            rng = np.random.default_rng(1)
            end = time.monotonic() + seconds
            while time.monotonic() < end or killed < count:
                i = int(rng.integers(count))
                wait_until(lambda: answered[i] > 0 or not clients[i].is_alive(), 30, "a client's first answer")
                assert clients[i].is_alive(), f"client {i} ended by itself with {clients[i].exitcode}"
                clients[i].kill()
                clients[i].join()
                killed += 1
                clients[i] = start(i, count + killed)
            for c in clients:
                c.kill()
                c.join()
            wait_until(lambda: metric(server, "shoal_sessions") == 0, 20, "the end of all sessions")
            assert metric(server, "shoal_session_bytes") == 0 and metric(server, "shoal_inflight_bytes") < 1 << 20
            stats = json.loads(get(server.http, "/v2/models/plain/stats").text)["model_stats"][0]["inference_stats"]
            done = stats["success"]["count"]
            assert sum(answered) <= done <= sum(answered) + killed + count, (done, sum(answered), killed)
            wait_until(lambda: len(os.listdir(f"/proc/{server.process.pid}/fd")) <= files + 2, 10, "the files of sessions")
            assert "DATA RACE" not in server.log
            print(f"{killed + count} clients killed, {done} calls answered, {stats['fail']['count']} withdrawn")


def test_the_example_of_a_pool(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(pymodels.PACKAGE), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("SHOAL", str(BINARY))
    done = subprocess.run([sys.executable, ROOT / "examples/sessions/pool.py", "--processes=4", "--pictures=40"],
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("40 pictures by 4 processes"), done.stdout
