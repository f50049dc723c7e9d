"""tritonclient.grpc and grpc.aio: unary calls, tensors by contents and raw, compression, load."""

import asyncio
import http.client
import json
import queue
import re

import grpc
import numpy as np
import pytest
import tritonclient.grpc as library
import tritonclient.grpc.aio
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

import clients
import models
import server
from server import wait_until

# How explicit contents are named, by type; the halves can only be raw.
CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents",
    "UINT32": "uint_contents", "UINT64": "uint64_contents", "FP32": "fp32_contents",
    "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip

SLOW = '{"inputs":[{"name":"INPUT0","shape":[2],"datatype":"FP32","data":[1,2]}]}'


def pending(target) -> int:
    """How many requests wait behind the one that the model `slow` runs."""
    text = server.get(target.metrics, "/metrics").text
    found = re.search(r'nv_inference_pending_request_count\{model="slow",version="1"\} (\d+)', text)
    assert found, text
    return int(found.group(1))


def executions(target) -> int:
    stats = json.loads(server.get(target.http, "/v2/models/slow/stats").body)["model_stats"]
    return stats[0]["execution_count"]


def settled_executions(target) -> int:
    """The count once whatever earlier tests left running has ended: one request goes after it."""
    clients.infer_json(target.http, SLOW, model="slow")
    return executions(target)


@pytest.fixture
def stub(target):
    with grpc.insecure_channel(target.grpc) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


@pytest.mark.peer
@pytest.mark.parametrize("names", [[], ["OUTPUT0"], ["OUTPUT1"], ["OUTPUT1", "OUTPUT0"]], ids=str)
def test_outputs_are_those_asked_for_by_name_order(grpc_client, names):
    outputs = [library.InferRequestedOutput(n) for n in names] or None
    got = grpc_client.infer("simple", clients.simple_inputs(library), outputs=outputs)
    assert [o.name for o in got.get_response().outputs] == sorted(names or ["OUTPUT0", "OUTPUT1"])
    for name, want in (("OUTPUT0", clients.RAMP + clients.ONES), ("OUTPUT1", clients.RAMP - clients.ONES)):
        if name in (names or [name]):
            np.testing.assert_array_equal(got.as_numpy(name), want)


@pytest.mark.peer
def test_the_answer_names_model_version_and_id(grpc_client):
    got = grpc_client.infer("versions_all", [four(1.0)], request_id="h\u00e4\u20ac").get_response()
    assert (got.model_name, got.model_version, got.id) == ("versions_all", "3", "h\u00e4\u20ac")
    assert got.outputs[0].datatype == "FP32" and list(got.outputs[0].shape) == [1, 4]
    assert not got.outputs[0].HasField("contents") and len(got.raw_output_contents) == 1


def four(value: float):
    return clients.tensor(library, "INPUT0", "FP32", np.full((1, 4), value, np.float32))


@pytest.mark.peer
@pytest.mark.parametrize("wire", CONTENTS)
def test_explicit_contents_of_every_type(stub, wire):
    array = clients.sample(wire, (2, 3))
    request = service_pb2.ModelInferRequest(model_name=f"identity_{wire.lower()}")
    tensor = request.inputs.add(name="INPUT0", datatype=wire, shape=[2, 3])
    getattr(tensor.contents, CONTENTS[wire]).extend(array.ravel().tolist())
    got = library.InferResult(stub.ModelInfer(request, timeout=10)).as_numpy("OUTPUT0")
    np.testing.assert_array_equal(got.astype(models.TYPES[wire].numpy), array)


@pytest.mark.peer
def test_parameters_of_every_type_are_taken(grpc_client):
    parameters = {"int": 7, "text": "x", "yes": True}
    got = grpc_client.infer(
        "simple", clients.simple_inputs(library), parameters=parameters, priority=1, timeout=5_000_000,
        sequence_id=3, sequence_start=True, sequence_end=True,
    )  # fmt: skip
    clients.assert_simple(got)


@pytest.mark.peer
@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_messages(grpc_client, algorithm):
    got = grpc_client.infer("simple", clients.simple_inputs(library), compression_algorithm=algorithm)
    clients.assert_simple(got)


@pytest.mark.peer
def test_surplus_raw_contents_are_ignored(stub):
    request = service_pb2.ModelInferRequest(model_name="simple")
    for i, array in enumerate((clients.RAMP, clients.ONES)):
        request.inputs.add(name=f"INPUT{i}", datatype="INT32", shape=[1, 16])
        request.raw_input_contents.append(array.tobytes())
    request.raw_input_contents.append(b"more")
    clients.assert_simple(library.InferResult(stub.ModelInfer(request, timeout=10)))


@pytest.mark.peer
def test_four_megabytes_and_more_than_the_library_default(target):
    array = np.random.default_rng(2).random((1024, 1500), np.float32)
    client = library.InferenceServerClient(target.grpc)
    got = client.infer("identity_fp32", [clients.tensor(library, "INPUT0", "FP32", array)])
    np.testing.assert_array_equal(got.as_numpy("OUTPUT0"), array)
    client.close()


@pytest.mark.peer
def test_a_hundred_requests_in_flight_on_one_connection(target):
    async def run():
        async with tritonclient.grpc.aio.InferenceServerClient(target.grpc) as client:
            assert await client.is_server_live() and await client.is_server_ready()
            assert (await client.get_model_metadata("simple")).name == "simple"

            async def one(i):
                a = np.full((1, 16), i, np.int32)
                inputs = clients.pair(library, "INT32", a, clients.ONES)
                got = await client.infer("simple", inputs, request_id=str(i))
                np.testing.assert_array_equal(got.as_numpy("OUTPUT0"), np.full((1, 16), i + 1))
                return got.get_response().id

            return await asyncio.gather(*(one(i) for i in range(100)))

    assert asyncio.run(asyncio.wait_for(run(), 30)) == [str(i) for i in range(100)]


@pytest.mark.peer
def test_callbacks_of_the_threaded_client(grpc_client):
    answers: queue.Queue = queue.Queue()
    for _ in range(20):
        grpc_client.async_infer(
            "simple", clients.simple_inputs(library), callback=lambda result, error: answers.put((result, error))
        )
    for _ in range(20):
        result, error = answers.get(timeout=10)
        assert error is None
        clients.assert_simple(result)


@pytest.mark.peer
def test_a_client_deadline_ends_the_wait(grpc_client):
    with pytest.raises(InferenceServerException) as caught:
        grpc_client.infer("slow", [vector(1.0)], client_timeout=0.05)
    # The server's clock may be the first to notice; its reset reads as a cancellation.
    assert caught.value.status() in ("StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED")


def vector(value: float):
    return clients.tensor(library, "INPUT0", "FP32", np.full(2, value, np.float32))


def test_cancelled_calls_that_wait_do_not_run(target):
    """Four calls are cancelled while the first of them runs: only that one, and a later one, are executed."""

    async def run():
        async with tritonclient.grpc.aio.InferenceServerClient(target.grpc) as client:
            tasks = [asyncio.create_task(client.infer("slow", [vector(i)])) for i in range(4)]
            await asyncio.to_thread(wait_until, lambda: pending(target) == 3, 5, "three calls behind a running one")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert (await client.infer("slow", [vector(7)])).as_numpy("OUTPUT0")[0] == 7

    before = settled_executions(target)
    asyncio.run(asyncio.wait_for(run(), 20))
    assert executions(target) - before <= 2


@pytest.mark.peer
@pytest.mark.parametrize("service", ["", "inference.GRPCInferenceService", "anything"])
def test_the_standard_health_service_answers(target, service):
    with grpc.insecure_channel(target.grpc) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        request = b"\x0a" + bytes([len(service)]) + service.encode() if service else b""
        assert check(request, timeout=5) == b"\x08\x01"  # SERVING


def test_reflection_names_the_service(target):
    with grpc.insecure_channel(target.grpc) as channel:
        info = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        answer = next(iter(info(iter([b"\x3a\x00"]), timeout=5)))  # list_services: ""
        assert b"inference.GRPCInferenceService" in answer


@pytest.mark.peer
def test_an_unknown_method_is_unimplemented(target):
    with grpc.insecure_channel(target.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/inference.GRPCInferenceService/Nope")(b"", timeout=5)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_requests_of_closed_http_connections_do_not_run(target):
    """The same over HTTP: who closes the connection has cancelled."""
    host, port = target.http.rsplit(":", 1)
    connections = [http.client.HTTPConnection(host, int(port), timeout=10) for _ in range(4)]
    before = settled_executions(target)
    for connection in connections:
        connection.request("POST", "/v2/models/slow/infer", SLOW)
    wait_until(lambda: pending(target) == 3, 5, "three requests behind a running one")
    for connection in connections:
        connection.close()
    assert clients.infer_json(target.http, SLOW, model="slow").status == 200
    assert executions(target) - before <= 2
