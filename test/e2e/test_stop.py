"""--exit-timeout-secs holds whatever hangs: the process ends in time, without workers, and says what was cut off."""

from __future__ import annotations

import contextlib
import pathlib
import queue
import re
import signal
import time
from concurrent import futures

import grpc
import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

import clients
import faults
import graphs
import models
import pymodels
import server

TIMEOUT = 1  # the exit timeout of these tests, in seconds
SLACK = 1.5  # what may come on top of it; a second of it is for the machine

# Hangs where HANG says, deaf to SIGTERM, with a child that is as deaf. It leaves
# the ids of both in a file.
HUNG = '''
import os
import signal
import subprocess
import sys
import time


def hang():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"])
    with open(PIDS + ".part", "w") as f:
        f.write(f"{os.getpid()} {child.pid}")
    os.rename(PIDS + ".part", PIDS)
    while True:
        time.sleep(600)


PIDS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pids")
if HANG == "import":
    hang()


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        if HANG == "auto_complete_config":
            hang()
        return config

    def initialize(self, args):
        if HANG == "initialize":
            hang()

    def execute(self, requests):
        if HANG == "execute":
            hang()
        self.senders = [r.get_response_sender() for r in requests]  # of a decoupled model, never used

    def finalize(self):
        if HANG == "finalize":
            hang()
'''

CONFIG = """
max_batch_size: 0
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }
"""

DECOUPLED = CONFIG + "model_transaction_policy { decoupled: true }\n"


@contextlib.contextmanager
def serving(tmp_path: pathlib.Path, hang: str, config: str = CONFIG):
    """A server with the model `hung`, and where it leaves its process ids."""
    repository = pymodels.write(tmp_path / "repository", "hung", f"HANG = {hang!r}\n{HUNG}", config)
    with pymodels.serve(repository, f"--exit-timeout-secs={TIMEOUT}") as running:
        yield running, repository / "hung" / "1" / "pids"


def pids(path: pathlib.Path) -> list[int]:
    server.wait_until(path.exists, 20, "the model to hang")
    return [int(word) for word in path.read_text().split()]


def stop(running: server.Server, most: float = TIMEOUT + SLACK) -> int:
    """Sends SIGTERM and returns the exit code, which must come in time."""
    begin = time.monotonic()
    running.signal(signal.SIGTERM)
    code = running.wait(30)
    took = time.monotonic() - begin
    assert took < most, f"it took {took:.2f} s, want at most {most}:\n{running.log}"
    return code


def assert_gone(ids: list[int]) -> None:
    server.wait_until(lambda: not any(map(faults.alive, ids)), 2, f"the processes {ids} to be gone")


def ones(library):
    return [clients.tensor(library, "INPUT0", "FP32", np.ones(1, np.float32))]


def ask(running: server.Server, protocol: str):
    library = clients.LIBRARIES[protocol]
    with library.InferenceServerClient(getattr(running, protocol)) as client:
        return client.infer("hung", ones(library))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_model_that_hangs_does_not_hold_up_the_end(tmp_path, protocol):
    with serving(tmp_path, "execute") as (running, left), futures.ThreadPoolExecutor(2) as pool:
        running.wait_ready()
        calls = [pool.submit(ask, running, protocol) for _ in range(2)]
        ids = pids(left)
        server.wait_until(lambda: 'nv_inference_pending_request_count{model="hung",version="1"} 1' in server.get(running.metrics, "/metrics").text, 10, "the second request to wait")
        assert stop(running) == 1
        assert_gone(ids)
        for call in calls:  # each is told, since its worker can be ended
            error = call.exception(10)
            assert error is not None and re.search("exit-timeout|is being stopped", str(error)), error
        said = re.search(r"Exit timeout expired.*", running.log)
        assert said, running.log
        other = "grpc" if protocol == "http" else "http"
        for want in (f"{protocol}_requests=2", f"{other}_requests=0", 'requests_by_model="hung version 1: 2"'):
            assert want in said.group(), said.group()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_long_run_inside_onnx_runtime_does_not_hold_up_the_end(serve, protocol):
    long = models.Model(
        name="long",
        inputs=(models.Tensor("INPUT0", "INT64", (1,)),),
        outputs=(models.Tensor("OUTPUT0", "FP32", (1, 256)),),
        versions={1: graphs.long_loop()},
    )
    running = serve(f"--exit-timeout-secs={TIMEOUT}", wanted=(long,)).wait_ready()
    library = clients.LIBRARIES[protocol]

    def ask_long(times: int):
        with library.InferenceServerClient(getattr(running, protocol)) as client:
            return client.infer("long", [clients.tensor(library, "INPUT0", "INT64", np.array([times], np.int64))])

    assert ask_long(3).as_numpy("OUTPUT0")[0, 0] == 1
    with futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask_long, 10_000_000)  # many minutes
        server.wait_until(lambda: busy(running, "long"), 10, "the run to begin")
        assert stop(running) == 1
        assert call.exception(10) is not None
    assert re.search(rf'Exit timeout expired.*{protocol}_requests=1.*requests_by_model="long version 1: 1"', running.log), running.log


def busy(running: server.Server, model: str) -> bool:
    return f'shoal_instances_busy{{model="{model}",version="1"}} 1' in server.get(running.metrics, "/metrics").text


def test_a_decoupled_call_that_never_ends_does_not_hold_up_the_end(tmp_path):
    with serving(tmp_path, "", DECOUPLED) as (running, _):
        running.wait_ready()
        waiting: queue.Queue = queue.Queue()
        with grpc.insecure_channel(running.grpc) as channel:
            request = service_pb2.ModelInferRequest(model_name="hung")
            request.inputs.add(name="INPUT0", datatype="FP32", shape=[1])
            request.raw_input_contents.append(np.ones(1, np.float32).tobytes())
            waiting.put(request)
            stream = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter(waiting.get, None))
            server.wait_until(lambda: executed(running), 10, "the request to have been executed")
            workers = faults.children(running.process.pid)
            assert stop(running) == 1
            stream.cancel()
            waiting.put(None)
        assert_gone(workers)
        assert re.search(r'Exit timeout expired.*grpc_requests=1.*requests_by_model="hung version 1: 1"', running.log), running.log


def executed(running: server.Server) -> bool:
    return 'nv_inference_exec_count{model="hung",version="1"} 1' in server.get(running.metrics, "/metrics").text


@pytest.mark.parametrize("hang", ["import", "auto_complete_config", "initialize"])
def test_a_model_that_hangs_while_it_loads_is_given_up_at_once(tmp_path, hang):
    with serving(tmp_path, hang) as (running, left):
        ids = pids(left)
        assert stop(running, most=TIMEOUT) == 0, running.log  # nothing was lost
        assert_gone(ids)


def test_a_model_that_hangs_while_it_is_unloaded_is_killed(tmp_path):
    with serving(tmp_path, "finalize") as (running, left):
        running.wait_ready()
        assert stop(running) == 1
        assert_gone(pids(left))
        assert "Exit timeout expired" in running.log, running.log


def test_a_library_that_hangs_while_a_model_loads_does_not_hold_up_the_end(serve, tmp_path):
    # The graph is constant: ONNX Runtime computes it while it makes the session.
    running = serve(f"--exit-timeout-secs={TIMEOUT}", wanted=(models.Model(name="folded", config=None, versions={1: graphs.long_constant()}),))
    running.wait_for_log("protocol=http")
    server.wait_until(lambda: computes(running), 20, "ONNX Runtime to compute")
    assert stop(running) == 1
    assert re.search("Exit timeout expired.*still_loading=folded", running.log), running.log


def computes(running: server.Server) -> bool:
    """Whether the process has used much processor time."""
    fields = pathlib.Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) > 100  # user time, in hundredths of a second


def test_a_second_signal_ends_a_hung_server_at_once(tmp_path):
    repository = pymodels.write(tmp_path / "repository", "hung", f"HANG = 'execute'\n{HUNG}", CONFIG)
    with pymodels.serve(repository, "--exit-timeout-secs=60") as running, futures.ThreadPoolExecutor(1) as pool:
        running.wait_ready()
        call = pool.submit(ask, running, "grpc")
        ids = pids(repository / "hung" / "1" / "pids")
        running.signal(signal.SIGTERM)
        running.wait_for_log("stopping: finishing")
        assert stop(running, most=SLACK) == 1
        assert_gone(ids)
        assert call.exception(10) is not None


def test_an_exit_timeout_of_zero_ends_an_idle_server_well(serve):
    running = serve("--exit-timeout-secs=0", wanted=(models.simple(),)).wait_ready()
    assert stop(running, most=SLACK) == 0, running.log


def test_pre_stop_delay_is_not_ready_and_serves(serve):
    running = serve("--pre-stop-delay-secs=3", wanted=(models.simple(),)).wait_ready()
    client = tritonclient.grpc.InferenceServerClient(running.grpc)
    sent = time.monotonic()
    running.signal()
    server.wait_until(lambda: server.get(running.http, "/v2/health/ready").status == 400, 2.5, "the server not to be ready")
    assert not client.is_server_ready() and client.is_server_live()
    while time.monotonic() < sent + 2:
        clients.assert_simple(client.infer("simple", clients.simple_inputs(tritonclient.grpc)))
        assert clients.infer_json(running.http, clients.simple_json()).status == 200  # on a new connection
    assert running.wait() == 0
    assert time.monotonic() - sent >= 3
