"""Decoupled Python models over gRPC streams: any number of responses, from anywhere, always with an end."""

from __future__ import annotations

import contextlib
import json
import queue
import time

import grpc
import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

import clients
import pymodels
from server import get, post, wait_until

TIMEOUT = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with pymodels.serve(pymodels.copy(tmp_path_factory.mktemp("decoupled"), "countdown", "later")) as server:
        yield server.wait_ready()
        assert server.process.poll() is None, f"the server died:\n{server.log}"


class Stream:
    """A stream whose answers come in a queue as (id, result or error, is final)."""

    def __init__(self, address: str):
        self.client = tritonclient.grpc.InferenceServerClient(address)
        self.answers: queue.Queue = queue.Queue()
        self.client.start_stream(callback=lambda result, error: self.answers.put((result, error)))

    def send(self, model: str, id: str, **arrays) -> None:
        inputs = [clients.tensor(tritonclient.grpc, n, t, a) for n, (t, a) in arrays.items()]
        self.client.async_stream_infer(model, inputs, request_id=id, enable_empty_final_response=True)

    def next(self):
        return self.answers.get(timeout=TIMEOUT)

    def all(self, requests: int = 1) -> tuple[dict[str, list], list]:
        """Results by request until so many have had their final one, and the errors."""
        results: dict[str, list] = {}
        errors = []
        while requests:
            result, error = self.next()
            if error is not None:
                errors.append(error)
                continue
            response = result.get_response()
            if len(response.outputs):
                results.setdefault(response.id, []).append(result)
            requests -= response.parameters["triton_final_response"].bool_param
        return results, errors


@pytest.fixture
def stream(server):
    made = Stream(server.grpc)
    with contextlib.closing(made.client):
        yield made
        made.client.stop_stream()


def count(stream: Stream, n: int, how: str = "plain", id: str = "r") -> None:
    arrays = {"N": ("INT32", np.array([n], np.int32)), "HOW": ("BYTES", np.array([how.encode()], np.object_))}
    stream.send("countdown", id, **arrays)


@pytest.mark.parametrize("how", ["plain", "with_last", "in_thread"])
@pytest.mark.parametrize("n", [1, 2, 200])
def test_every_response_comes_in_order(stream, how, n):
    count(stream, n, how)
    results, errors = stream.all()
    assert not errors
    assert [int(r.as_numpy("LEFT")[0]) for r in results["r"]] == list(reversed(range(n)))
    assert results["r"][0].as_numpy("TEXT").tolist() == [f"{n - 1} left".encode(), b"\x01"]


def test_a_request_may_have_no_response(stream):
    count(stream, 0)
    assert stream.all() == ({}, [])


def test_many_requests_share_a_stream(stream):
    for n in range(20):
        count(stream, n, ("plain", "in_thread", "with_last")[n % 3] if n else "plain", f"r{n}")
    results, errors = stream.all(20)
    assert not errors
    assert {id: len(r) for id, r in results.items()} == {f"r{n}": n for n in range(1, 20)}


def test_response_parameters_come_with_each_response(stream):
    count(stream, 1, "with_parameters")
    results, _ = stream.all()
    assert results["r"][0].get_response().parameters["part"].int64_param == 1


def test_an_error_may_come_between_responses(stream):
    count(stream, 0, "with_error")
    got = [stream.next() for _ in range(3)]
    assert [error is None for _, error in got] == [True, False, True]
    assert "half way" in got[1][1].message()


@pytest.mark.parametrize("how, want", [
    ("raises", "message: ValueError: the wine is corked"),
    ("forgets", "without sending TRITONSERVER_RESPONSE_COMPLETE_FINAL"),
])  # fmt: skip
def test_a_request_ends_whatever_the_model_does(stream, how, want):
    count(stream, 0, how)
    got = [stream.next(), stream.next()]
    assert got[0][1] is None
    assert want in got[1][1].message()
    count(stream, 1, id="after")
    result, error = stream.next()  # as in Triton, the error was the last of the failed one
    assert error is None and result.get_response().id == "after"


def test_the_final_flag_comes_with_the_response_that_was_sent_with_it(stream):
    count(stream, 1, "with_last", id="r")
    count(stream, 1, "with_last", id="next")
    for id in ("r", "next"):
        result, error = stream.next()
        assert error is None and result.get_response().id == id
        assert result.get_response().parameters["triton_final_response"].bool_param and len(result.get_response().outputs)


def test_nothing_is_sent_after_the_final_flag(server, stream):
    count(stream, 1, "after_final")
    results, errors = stream.all()
    assert len(results["r"]) == 1 and not errors
    server.wait_for_log("refused: Unable to send response. Response sender has been closed.")


def test_async_execute_answers_overlapping_requests(stream):
    for n in range(8):
        x = np.full((1 + n % 2, 4), 8 - n, np.float32)
        stream.send("later", f"r{n}", X=("FP32", x))
    results, errors = stream.all(8)
    assert not errors
    for n in range(8):
        got = [r.as_numpy("Y") for r in results[f"r{n}"]]
        assert [g[0, 0] for g in got] == [8 - n, 9 - n, 10 - n]
        assert got[0].shape == (1 + n % 2, 4)


def test_a_client_that_goes_away_is_seen_as_cancelled(server):
    made = Stream(server.grpc)
    count(made, 0, "until_cancelled")
    assert made.next()[1] is None
    made.client.stop_stream(cancel_requests=True)
    made.client.close()
    server.wait_for_log("saw the cancellation")


def test_other_ways_to_ask_are_refused(server):
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        with pytest.raises(InferenceServerException, match="ModelInfer RPC doesn't support models with decoupled transaction policy"):
            client.infer("countdown", [clients.tensor(tritonclient.grpc, "N", "INT32", np.array([1], np.int32))])
    body = {"inputs": [{"name": "N", "datatype": "INT32", "shape": [1], "data": [1]}]}
    answer = post(server.http, "/v2/models/countdown/infer", json.dumps(body))
    assert "HTTP end point doesn't support models with decoupled transaction policy" in answer.text


FLOOD = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                for i in range(300):
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.full(25_000, i, np.int32))]))
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
FLOOD_CONFIG = """
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
model_transaction_policy { decoupled: true }
"""


def test_a_client_that_reads_slowly_holds_the_model_up_and_loses_nothing(tmp_path):
    """30 MB of responses to a client for which 2 MB may wait."""
    request = service_pb2.ModelInferRequest(model_name="flood")
    request.inputs.add(name="IN", datatype="INT32", shape=[1]).contents.int_contents.append(1)
    with pymodels.serve(pymodels.write(tmp_path, "flood", FLOOD, FLOOD_CONFIG), "--response-queue-size=2000000") as server:
        server.wait_ready()
        with grpc.insecure_channel(server.grpc, options=[("grpc.max_receive_message_length", -1)]) as channel:
            stream = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([request]), timeout=60)
            got = [next(stream)]
            seen = [(-1, 0.0)]

            def sent_nothing_for_a_while() -> bool:
                stats = json.loads(get(server.http, "/v2/models/flood/stats").text)["model_stats"][0]
                count = len(stats.get("response_stats", {}))
                if count != seen[-1][0]:
                    seen.append((count, time.monotonic()))
                return count > 0 and time.monotonic() - seen[-1][1] > 0.3

            wait_until(sent_nothing_for_a_while, TIMEOUT, "the model to be held up")
            got += stream
    assert [g.error_message for g in got if g.error_message] == []
    numbers = [np.frombuffer(g.infer_response.raw_output_contents[0], np.int32)[0] for g in got if g.infer_response.outputs]
    assert numbers == list(range(300))
    assert seen[-1][0] < 300, "the model was not held up: the test shows nothing"
