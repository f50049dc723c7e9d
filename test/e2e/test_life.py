"""The life of the process: start, readiness, signals, draining, exit codes."""

from __future__ import annotations

import json
import pathlib
import queue
import re
import signal
import subprocess
import time
from concurrent import futures

import grpc
import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

import clients
import models
import rawhttp
import server

REQUEST = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]}


def creating(name: str, seconds: int) -> models.Model:
    """The identity backend, taking its time at load."""
    made = models.slow(name, 0)
    extra = made.extra + models.parameter("creation_delay_sec", seconds)
    return models.Model(**{**made.__dict__, "extra": extra})


BROKEN = models.Model(
    name="broken",
    inputs=(models.Tensor("INPUT0", "FP32", (4,)),),
    outputs=(models.Tensor("OUTPUT0", "FP32", (4,)),),
    versions={1: b"this is no ONNX file"},
)


class Flight:
    """Requests to the model `slow` that are in flight, each on its own connection: one runs, the others wait."""

    def __init__(self, running: server.Server, count: int):
        assert count > 1, "that a request runs is only seen by another that waits"
        self.pool = futures.ThreadPoolExecutor(count)
        self.calls = [self.pool.submit(clients.infer_json, running.http, REQUEST, model="slow") for _ in range(count)]
        server.wait_until(lambda: accepted(running) == count, 5, f"{count} requests in flight")

    def statuses(self) -> list[object]:
        """Each call's status, or what it raised."""
        done = [c.exception(20) or c.result().status for c in self.calls]
        self.pool.shutdown()
        return done


def accepted(running: server.Server) -> int:
    """How many requests are there, when more are than the one instance can run."""
    text = server.get(running.metrics, "/metrics").text
    pending = re.search(r'nv_inference_pending_request_count\{model="slow",version="1"\} (\d+)', text)
    waiting = int(pending.group(1)) if pending else 0
    return waiting + 1 if waiting else 0


def test_the_log_has_a_table_of_the_models_and_their_state(serve):
    running = serve("--exit-on-error=false", "--strict-readiness=false", wanted=(models.simple(), BROKEN))
    running.wait_for_log(r"msg=ready")
    lines = running.log.splitlines()
    assert any("simple" in line and "READY" in line for line in lines), running.log
    row = [line for line in lines if "broken" in line and "UNAVAILABLE" in line]
    assert row and "Protobuf parsing failed" in running.log, running.log


def test_ready_only_after_everything_is_loaded(serve):
    running = serve(wanted=(models.simple(), creating("late", 1)))
    running.wait_ready()
    assert time.monotonic() - running.started >= 1, "ready before its slowest model could be"
    answer = clients.infer_json(running.http, REQUEST, model="late")
    assert answer.status == 200, answer.text


def test_models_load_side_by_side(serve):
    begin = time.monotonic()
    serve(wanted=tuple(creating(f"late{i}", 1) for i in range(3))).wait_ready()
    assert time.monotonic() - begin < 2.5


def test_sigterm_answers_what_is_in_flight_and_exits_well(serve):
    running = serve(wanted=(models.slow("slow", 300),)).wait_ready()
    flight = Flight(running, 4)
    running.signal(signal.SIGTERM)
    assert flight.statuses() == [200] * 4
    assert running.wait() == 0, running.log


def test_sigint_is_as_good_as_sigterm(serve):
    running = serve(wanted=(models.simple(),)).wait_ready()
    running.signal(signal.SIGINT)
    assert running.wait(5) == 0, running.log


def test_while_draining_nothing_new_is_taken(serve):
    running = serve(wanted=(models.slow("slow", 700),)).wait_ready()
    flight = Flight(running, 2)
    http = running.http
    running.signal(signal.SIGTERM)
    server.wait_until(lambda: refused(http), 1.2, "new requests to be refused")
    assert flight.statuses() == [200, 200]
    assert running.wait() == 0


def refused(http: str) -> bool:
    """Whether a new request gets no connection, or an answer that says to go elsewhere."""
    try:
        return server.get(http, "/v2/health/ready", timeout=1).status == 503
    except OSError:
        return True


def test_grpc_calls_in_flight_are_answered_after_sigterm(serve):
    running = serve(wanted=(models.slow("slow", 1000),)).wait_ready()
    inputs = [clients.tensor(tritonclient.grpc, "INPUT0", "FP32", np.ones(1, np.float32))]
    with tritonclient.grpc.InferenceServerClient(running.grpc) as client, futures.ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(client.infer, "slow", inputs) for _ in range(2)]
        server.wait_until(lambda: accepted(running) == 2, 5, "two calls in flight")
        running.signal(signal.SIGTERM)
        assert [c.result(10).as_numpy("OUTPUT0")[0] for c in calls] == [1, 1]
    assert running.wait() == 0


def test_idle_connections_and_streams_do_not_hold_up_the_end(serve):
    running = serve(wanted=(models.simple(),)).wait_ready()
    waiting: queue.Queue = queue.Queue()
    with grpc.insecure_channel(running.grpc) as channel, rawhttp.connect(running.http) as idle:
        idle.sendall(rawhttp.request("/v2/health/live", method="GET"))
        assert rawhttp.read_reply(idle, 0).status == 200
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        stream = stub.ModelStreamInfer(iter(waiting.get, None))
        stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=5)
        begin = time.monotonic()
        running.signal(signal.SIGTERM)
        assert running.wait(10) == 0, running.log
        assert time.monotonic() - begin < 3, "an idle client held up the end"
        stream.cancel()
        waiting.put(None)


def test_sigterm_while_models_load_ends_the_server(serve):
    running = serve(wanted=(creating("late", 20),))
    running.wait_for_log("listening")
    begin = time.monotonic()
    running.signal(signal.SIGTERM)
    assert running.wait(10) == 0, running.log
    assert time.monotonic() - begin < 3


def test_a_second_signal_stops_at_once(serve):
    running = serve(wanted=(models.slow("slow", 20_000),)).wait_ready()
    flight = Flight(running, 2)
    running.signal(signal.SIGTERM)
    server.wait_until(lambda: refused(running.http), 2, "the drain to begin")
    begin = time.monotonic()
    running.signal(signal.SIGTERM)
    assert running.wait(5) != 0
    assert time.monotonic() - begin < 1
    assert 200 not in flight.statuses()


def test_an_exit_timeout_that_is_exceeded_is_a_failure(serve):
    running = serve("--exit-timeout-secs=1", wanted=(models.slow("slow", 20_000),)).wait_ready()
    flight = Flight(running, 2)
    begin = time.monotonic()
    running.signal(signal.SIGTERM)
    assert running.wait(10) != 0
    assert 0.9 < time.monotonic() - begin < 3
    assert 200 not in flight.statuses()
    assert re.search(r"exit timeout|--exit-timeout-secs", running.log, re.IGNORECASE), running.log


@pytest.mark.parametrize("protocol", ["http", "grpc", "metrics"])
def test_a_port_that_is_taken_is_one_sentence_with_the_flag(repository, protocol):
    taken, port = server.taken_port()
    path = repository(models.simple())
    args = [a for a in server.PORTS if protocol not in a] + [f"--{protocol}-port={port}"]
    with taken, server.Server("--model-repository", path, *args, *server.LOOPBACK) as running:
        assert running.wait(10) == 1, running.log
        named = [line for line in running.log.splitlines() if f"--{protocol}-port" in line]
        assert len(named) == 1 and str(port) in named[0], running.log


def run(*args: object, binary: pathlib.Path = server.BINARY) -> subprocess.CompletedProcess:
    """Runs a command that should end by itself."""
    return subprocess.run(
        [str(binary), *map(str, args)], capture_output=True, text=True, timeout=20, env=server.environment()
    )


@pytest.mark.parametrize("args, words", [
    (["serve", "--no-such-flag"], "--no-such-flag"),
    (["serve", "--http-port", "abc", "--demo"], "--http-port"),
    (["serve", "--exit-on-error=perhaps", "--demo"], "--exit-on-error"),
    (["serve"], "--model-repository"),
    (["serve", "--demo", "surplus"], "surplus"),
    (["nosuchcommand"], "nosuchcommand"),
    (["serve", "--demo", "--model-control-mode=sometimes"], "--model-control-mode"),
])  # fmt: skip
def test_misuse_exits_2_and_names_the_culprit(args, words):
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr and "goroutine" not in done.stderr


def test_a_repository_that_is_not_there_exits_1(tmp_path):
    done = run("serve", "--model-repository", tmp_path / "nowhere", *server.PORTS, *server.LOOPBACK)
    assert done.returncode == 1
    assert "nowhere" in done.stderr and "--model-repository" in done.stderr + " ".join(map(str, done.args))


@pytest.mark.parametrize("command", [["--help"], ["serve", "--help"], ["help", "serve"]], ids=str)
def test_help_goes_to_standard_output(command):
    done = run(*command)
    assert done.returncode == 0 and done.stderr == ""
    assert "shoal" in done.stdout


def test_help_of_serve_lists_the_flags():
    text = run("serve", "--help").stdout
    for flag in ("--model-repository", "--http-port", "--grpc-port", "--metrics-port", "--exit-timeout-secs"):
        assert flag in text


def test_a_broken_model_ends_the_server_when_asked_to(serve):
    running = serve("--exit-on-error=true", wanted=(models.simple(), BROKEN))
    assert running.wait() == 1
    assert "broken" in running.log and "Protobuf parsing failed" in running.log


def test_exit_on_error_is_the_default(serve):
    assert serve(wanted=(BROKEN,)).wait() == 1


def test_a_broken_model_leaves_the_others_serving(serve):
    running = serve("--exit-on-error=false", wanted=(models.simple(), BROKEN))
    http = running.http
    server.wait_until(lambda: server.get(http, "/v2/models/simple/ready").status == 200, 10, "simple")
    assert clients.infer_json(http, clients.simple_json()).status == 200
    # Strict readiness: not every model is ready, so the server is not.
    assert server.get(http, "/v2/health/ready").status == 400
    assert server.get(http, "/v2/health/live").status == 200


def test_without_strict_readiness_a_running_server_is_ready(serve):
    running = serve("--exit-on-error=false", "--strict-readiness=false", wanted=(models.simple(), BROKEN))
    running.wait_ready()
    assert server.get(running.http, "/v2/models/broken/ready").status == 400


@pytest.mark.parametrize(
    "flags", [["--exit-on-error", "false"], ["--exit-on-error=OFF"], ["--exit-on-error=0"]], ids=str
)
def test_booleans_are_spelt_as_triton_takes_them(serve, flags):
    running = serve(*flags, "--strict-readiness", "false", wanted=(BROKEN,))
    running.wait_ready()


def test_tritonserver_as_the_name_of_the_program(tmp_path, repository):
    link = tmp_path / "tritonserver"
    link.symlink_to(server.BINARY)
    flags = ("--model-store", repository(models.simple()), *server.PORTS, *server.LOOPBACK)
    more = ("--backend-directory=/nowhere", "--http-thread-count=4", "--pinned-memory-pool-byte-size", "0")
    with server.Server(*flags, *more, binary=link, command=()) as running:
        running.wait_ready()
        assert json.loads(server.get(running.http, "/v2").body)["name"] == "triton"
        assert clients.infer_json(running.http, clients.simple_json()).status == 200
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def test_the_server_has_the_name_that_it_is_given(serve):
    running = serve("--id=harbour", wanted=(models.simple(),)).wait_ready()
    assert json.loads(server.get(running.http, "/v2").body)["name"] == "harbour"


def test_the_demo_needs_no_files(serve):
    running = serve("--demo").wait_ready()
    index = json.loads(server.post(running.http, "/v2/repository/index").body)
    assert {"digits", "add_sub"} <= {m["name"] for m in index if m["state"] == "READY"}


def test_protocols_can_be_turned_off(serve):
    running = serve("--allow-grpc=false", "--allow-metrics=false", wanted=(models.simple(),)).wait_ready()
    assert "protocol=grpc" not in running.log and "protocol=metrics" not in running.log


def test_two_repositories_are_served_together(tmp_path):
    one = models.write(tmp_path / "one", models.simple("first"))
    two = models.write(tmp_path / "two", models.simple("second"))
    flags = ("--model-repository", one, "--model-repository", two, *server.PORTS, *server.LOOPBACK)
    with server.Server(*flags) as running:
        running.wait_ready()
        for name in ("first", "second"):
            assert clients.infer_json(running.http, clients.simple_json(), model=name).status == 200


def test_the_same_name_in_two_repositories_is_ambiguous(tmp_path):
    one = models.write(tmp_path / "one", models.simple("twice"), models.simple("once"))
    two = models.write(tmp_path / "two", models.simple("twice"))
    flags = ("--model-repository", one, "--model-repository", two, *server.PORTS, *server.LOOPBACK)
    more = ("--exit-on-error=false", "--strict-readiness=false")
    with server.Server(*flags, *more) as running:
        running.wait_ready()
        index = json.loads(server.post(running.http, "/v2/repository/index").body)
    assert {"name": "twice", "state": "UNAVAILABLE", "reason": "model appears in two or more repositories"} in index
    assert {"name": "once", "version": "1", "state": "READY"} in index
