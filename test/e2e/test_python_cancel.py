"""A model that looks after its requests while they run is told of clients that go away, and the others do not notice."""

from __future__ import annotations

import itertools
import json
from concurrent import futures

import numpy as np
import pytest
import tritonclient.grpc as library

import clients
import pymodels
import rawhttp

# The batch's two requests run until a client has gone. What execute saw is in the log, and in the answers.
MODEL = """
    import time

    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            names = [r.request_id() for r in requests]
            assert not any(r.is_cancelled() for r in requests)
            pb_utils.Logger.log_info(f"running {' '.join(sorted(names))}")
            end = time.monotonic() + 60
            while not any(r.is_cancelled() for r in requests) and time.monotonic() < end:
                time.sleep(0.001)
            gone = [r.request_id() for r in requests if r.get_response_sender().is_cancelled()]
            pb_utils.Logger.log_info(f"gone: {' '.join(gone)}.")
            return [
                pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([[r.is_cancelled()]], np.float32))])
                for r in requests
            ]
"""
CONFIG = """
max_batch_size: 2
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] } ]
dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 60000000 }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = pymodels.write(tmp_path_factory.mktemp("python"), "waits", MODEL, CONFIG)
    with pymodels.serve(repository) as server:
        yield server.wait_ready()
        assert server.process.poll() is None, f"the server died:\n{server.log}"


def one() -> list:
    return [clients.tensor(library, "INPUT0", "FP32", np.ones((1, 1), np.float32))]


class Grpc:
    """A request over gRPC. The answer, or its error, is in over."""

    timeout: float | None = None

    def __init__(self, server, name: str):
        self.over: futures.Future = futures.Future()
        self.client = library.InferenceServerClient(server.grpc)
        self.call = self.client.async_infer(
            "waits", one(), lambda result, error: self.over.set_result((result, error)), request_id=name, client_timeout=self.timeout
        )

    def leave(self) -> None:
        self.call.cancel()

    def close(self) -> None:
        self.over.result(60)
        self.client.close()


class Deadline(Grpc):
    timeout = 3  # seconds; the batch runs long before, and longer

    def leave(self) -> None:
        pass  # it passes by itself


class Stream:
    def __init__(self, server, name: str):
        self.client = library.InferenceServerClient(server.grpc)
        self.client.start_stream(lambda result, error: None)
        self.client.async_stream_infer("waits", one(), request_id=name)

    def leave(self) -> None:
        self.client.stop_stream(cancel_requests=True)

    def close(self) -> None:
        self.client.close()


class Http:
    def __init__(self, server, name: str):
        body = {"id": name, "inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
        self.sock = rawhttp.connect(server.http)
        self.sock.sendall(rawhttp.request("/v2/models/waits/infer", json.dumps(body).encode()))

    def leave(self) -> None:
        self.sock.close()

    def close(self) -> None:
        pass


WAYS = {"http": Http, "grpc": Grpc, "deadline": Deadline, "stream": Stream}
numbers = itertools.count()


@pytest.mark.parametrize("way", WAYS)
def test_a_model_sees_that_the_client_of_a_running_request_has_gone(server, way):
    number = next(numbers)
    leaves, stays = WAYS[way](server, f"leaves{number}"), Grpc(server, f"stays{number}")
    server.wait_for_log(f"running leaves{number} stays{number}")
    leaves.leave()
    server.wait_for_log(rf"gone: leaves{number}\.")
    result, error = stays.over.result(60)
    assert error is None
    assert result.as_numpy("OUTPUT0").item() == 0, "the request that nobody gave up was told to be cancelled"
    stays.close()
    leaves.close()
