"""What becomes of requests when the server is told to stop, and of its files when it is killed."""

from __future__ import annotations

import http.client
import json
import pathlib
import signal
import threading
from concurrent import futures

import grpc
import numpy as np
import pytest
import tritonclient.http
from tritonclient.grpc import service_pb2, service_pb2_grpc

import clients
import faults
import graphs
import models
import pymodels
import server

CALLERS = 64  # half of them over each protocol
BEFORE = 300  # requests that are answered before the signal
BODY = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "data": [1]}]})


class Count:
    """Counts the answers of all callers."""

    def __init__(self):
        self.lock = threading.Lock()
        self.good = 0
        self.bad: list[str] = []
        self.callers: set[int] = set()  # those that had an answer

    def answered(self, bad: str = "") -> None:
        with self.lock:
            self.callers.add(threading.get_ident())
            if bad:
                self.bad.append(bad)
            else:
                self.good += 1


def call_http(address: str, count: Count) -> None:
    """Sends requests on one connection until the server ends it."""
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.connect()
    connection.auto_open = False
    while connection.sock is not None:
        try:
            connection.request("POST", "/v2/models/slow/infer", BODY)
            response = connection.getresponse()
        except http.client.NotConnected:  # the last answer said so
            return
        except (http.client.RemoteDisconnected, ConnectionError):
            return  # between two requests; the server's record shows if it was within one
        try:
            text = response.read()
        except (http.client.HTTPException, OSError) as error:
            text = repr(error)
        count.answered("" if response.status == 200 and b"OUTPUT0" in text else f"HTTP {response.status} {text!r}")
        if response.will_close:
            return


def call_grpc(address: str, count: Count) -> None:
    """Sends requests on one connection until the server ends it."""
    request = service_pb2.ModelInferRequest(model_name="slow")
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[1, 1])
    request.raw_input_contents.append(np.ones(1, np.float32).tobytes())
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        while True:
            try:
                stub.ModelInfer(request, timeout=60)
            except grpc.RpcError as error:
                # Without a connection the client says which address it could not reach.
                if error.code() != grpc.StatusCode.UNAVAILABLE or "failed to connect" not in error.details():
                    count.answered(f"gRPC {error.code()} {error.details()}")
                return
            count.answered()


@pytest.mark.parametrize("batching", ["", "dynamic_batching { max_queue_delay_microseconds: 100000 }"], ids=["direct", "batches"])
def test_sigterm_under_64_callers_loses_no_request(serve, tmp_path, batching):
    record = tmp_path / "arrivals"
    model = models.with_extra(models.slow("slow", 2, max_batch_size=16), batching)
    running = serve(f"--record-arrivals={record}", wanted=(model,)).wait_ready()
    count = Count()
    with futures.ThreadPoolExecutor(CALLERS) as pool:
        calls = [
            pool.submit(*((call_http, running.http, count) if i % 2 else (call_grpc, running.grpc, count)))
            for i in range(CALLERS)
        ]
        server.wait_until(lambda: count.good >= BEFORE and len(count.callers) == CALLERS or count.bad, 60, "the callers to be at work")
        running.signal(signal.SIGTERM)
        assert running.wait(30) == 0, running.log
        for call in calls:
            call.result(30)
    assert not count.bad, f"{len(count.bad)} of {count.good + len(count.bad)} requests failed, such as {count.bad[0]}"
    assert arrivals(record) == count.good  # every request that the server had taken


def arrivals(record: pathlib.Path) -> int:
    return sum('"model":"slow"' in line for line in record.read_text().splitlines())


CONFIG = {
    "max_batch_size": 8,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
}
ECHO = b"""
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", r.inputs()[0].as_numpy())]) for r in requests]
"""


def test_a_start_after_sigkill_is_clean(tmp_path):
    temp = tmp_path / "temp"
    temp.mkdir()
    env = {"TMPDIR": str(temp)}
    flags = ["--demo", "--model-control-mode=explicit", "--load-model=add_sub", "--allow-client-shm=true", f"--grpc-address=unix://{tmp_path}/grpc"]

    def start(port: str) -> server.Server:
        return server.Server(*flags, pymodels.PYTHON, f"--http-port={port}", "--metrics-port=0", "--http-address=127.0.0.1", env=env)

    memory = shared_memory()
    with start("0") as killed:
        killed.wait_ready()
        address = killed.http
        use(address)
        workers = faults.children(killed.process.pid)
        assert workers and len(list(temp.iterdir())) == 1
        killed.process.kill()
        killed.wait()
        server.wait_until(lambda: not any(map(faults.alive, workers)), 10, "the workers to be gone")
    left = list(temp.iterdir())
    with start(address.rsplit(":", 1)[1]) as running:
        running.wait_ready()
        assert not any(folder.exists() for folder in left), "files of the killed server are still there"
        index = json.loads(server.post(running.http, "/v2/repository/index", '{"ready": true}').body)
        assert [m["name"] for m in index] == ["add_sub"], "only what this start has loaded"
        use(running.http)
        running.signal()
        assert running.wait() == 0, running.log
    assert not list(temp.iterdir())
    assert shared_memory() <= memory


def shared_memory() -> set[str]:
    return {p.name for p in pathlib.Path("/dev/shm").iterdir() if "shoal" in p.name}


def use(address: str) -> None:
    """Sends the server two models and asks each."""
    row = np.array([[1, 2, 3, 4]], np.float32)
    with tritonclient.http.InferenceServerClient(address) as client:
        for backend, file, code in (("onnxruntime", "model.onnx", graphs.scale(1.0)), ("python", "model.py", ECHO)):
            client.load_model(backend, config=json.dumps({**CONFIG, "backend": backend}), files={f"file:1/{file}": code})
            got = client.infer(backend, [clients.tensor(tritonclient.http, "INPUT0", "FP32", row)])
            np.testing.assert_array_equal(got.as_numpy("OUTPUT0"), row)
