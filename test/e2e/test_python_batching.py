"""Python models under load: batches across instances, every value checked."""

from __future__ import annotations

import json
import os
import queue
import threading

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

import clients
import pymodels

CALLERS, EACH = 64, 20

# Tells with each row which process computed it and in a batch of how many requests.
TRITON = """
    import os
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            responses = []
            for r in requests:
                x = pb_utils.get_input_tensor_by_name(r, "X").as_numpy()
                who = np.tile(np.array([[os.getpid(), len(requests)]], np.int32), (len(x), 1))
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * 2 + 1), pb_utils.Tensor("WHO", who)]))
            return responses
"""
CONFIG = """
    max_batch_size: 32
    input [ { name: "X" data_type: TYPE_FP32 dims: [ 4 ] } ]
    output [ { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] }, { name: "WHO" data_type: TYPE_INT32 dims: [ 2 ] } ]
    instance_group [ { kind: KIND_CPU count: 2 } ]
    dynamic_batching { }
"""
SHOAL = """
    import os
    import numpy as np
    import shoal

    class Double(shoal.Model):
        X = shoal.Input("float32", [4])
        Y = shoal.Output("float32", [4])
        WHO = shoal.Output("int32", [2])
        instances = 2

        def predict(self, batch):
            who = np.full((batch.rows, 2), [os.getpid(), len(batch.counts)], np.int32)
            return batch["X"] * 2 + 1, who
"""

# Counts its executions, each of which takes as long as gathering the next is worth while.
COUNTER = """
    import time
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        count = 0

        def execute(self, requests):
            self.count += 1
            time.sleep(0.02)
            y = np.full((1, 1), self.count, np.float32)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]) for _ in requests]
"""
ONE_BY_ONE = """
    max_batch_size: 1
    input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
    output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU } ]
    dynamic_batching { }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = tmp_path_factory.mktemp("batching")
    pymodels.write(repository, "triton", TRITON, CONFIG)
    pymodels.write(repository, "shoal", SHOAL, version="")
    pymodels.write(repository, "counter", COUNTER, ONE_BY_ONE)
    with pymodels.serve(repository) as server:
        yield server.wait_ready()
        assert server.process.poll() is None


def call(server, protocol: str, model: str, n: int, seen: list, faults: list) -> None:
    library = clients.LIBRARIES[protocol]
    client = library.InferenceServerClient(getattr(server, protocol))
    try:
        for i in range(EACH):
            rows = 1 + (n + i) % 3
            x = (np.arange(rows * 4).reshape(rows, 4) + n * 1000 + i * 7).astype(np.float32)
            got = client.infer(model, [clients.tensor(library, "X", "FP32", x)])
            np.testing.assert_array_equal(got.as_numpy("Y"), x * 2 + 1)
            seen.append(tuple(got.as_numpy("WHO")[0]))
    except Exception as fault:
        faults.append(fault)
    finally:
        client.close()


@pytest.mark.parametrize("model", ["triton", "shoal"])
def test_two_instances_under_64_callers(server, model):
    seen: list = []
    faults: list = []
    threads = [
        threading.Thread(target=call, args=(server, ("http", "grpc")[n % 2], model, n, seen, faults)) for n in range(CALLERS)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not faults, f"{len(faults)} of {CALLERS} callers failed: {faults[0]!r}"
    assert len(seen) == CALLERS * EACH
    assert len({pid for pid, _ in seen}) == 2, "want both instances to have run"
    assert os.getpid() not in {pid for pid, _ in seen}
    assert max(together for _, together in seen) > 1, "want requests to have run together"
    client = tritonclient.http.InferenceServerClient(server.http)
    (stats,) = client.get_inference_statistics(model)["model_stats"]
    client.close()
    assert stats["inference_stats"]["success"]["count"] == CALLERS * EACH
    assert stats["execution_count"] < CALLERS * EACH


def test_the_configuration_of_a_folder_with_model_py_alone(server):
    client = tritonclient.grpc.InferenceServerClient(server.grpc)
    config = json.loads(json.dumps(client.get_model_config("shoal", as_json=True)))["config"]
    client.close()
    assert config["max_batch_size"] == 32 and "dynamic_batching" in config
    assert config["instance_group"][0]["count"] == 2


def test_requests_of_a_stream_run_in_order_and_wait_in_the_queue(server):
    """The batch that is made ready while another runs neither overtakes nor counts as running."""
    answers: queue.Queue = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for i in range(40):
            x = clients.tensor(tritonclient.grpc, "X", "FP32", np.ones((1, 1), np.float32))
            client.async_stream_infer("counter", [x], request_id=str(i))
        got = []
        for _ in range(40):
            result, error = answers.get(timeout=30)
            assert error is None, error
            got.append(int(result.as_numpy("Y")[0, 0]))
        (stats,) = client.get_inference_statistics("counter", as_json=True)["model_stats"]
    assert got == list(range(1, 41))
    part = {name: int(stats["inference_stats"][name]["ns"]) / 1e9 for name in ("queue", "compute_input", "compute_infer")}
    assert part["compute_infer"] >= 40 * 0.02
    assert part["compute_input"] < 0.2, f"the wait for the instance is no part of it: {part}"
    assert part["queue"] > 10 * part["compute_infer"], part
