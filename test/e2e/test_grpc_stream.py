"""ModelStreamInfer: order, errors that leave the stream open, closing and cancelling."""

import asyncio
import queue

import grpc
import numpy as np
import pytest
import tritonclient.grpc as library
import tritonclient.grpc.aio
from tritonclient.grpc import service_pb2, service_pb2_grpc

import clients


@pytest.fixture
def stream(target):
    """A client with an open stream, and the queue that its answers come to."""
    answers: queue.Queue = queue.Queue()
    with library.InferenceServerClient(target.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        yield client, answers


def request(model: str = "simple", id_: str = "42", width: int = 16) -> service_pb2.ModelInferRequest:
    made = service_pb2.ModelInferRequest(model_name=model, id=id_)
    for i in range(2):
        made.inputs.add(name=f"INPUT{i}", datatype="INT32", shape=[1, width])
        made.raw_input_contents.append(np.full(width, i, np.int32).tobytes())
    return made


def exchange(target, *requests, **more) -> list[service_pb2.ModelStreamInferResponse]:
    """Sends all requests on one stream, closes it and returns every answer."""
    with grpc.insecure_channel(target.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        return list(stub.ModelStreamInfer(iter(requests), timeout=20, **more))


@pytest.mark.peer
def test_answers_come_in_the_order_of_the_requests(stream):
    client, answers = stream
    for i in range(100):
        a = np.full((1, 16), i, np.int32)
        client.async_stream_infer("simple", clients.pair(library, "INT32", a, clients.ONES), request_id=str(i))
    for i in range(100):
        result, error = answers.get(timeout=10)
        assert error is None, error
        assert result.get_response().id == str(i)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), np.full((1, 16), i + 1))


@pytest.mark.peer
def test_a_fast_model_waits_for_the_slow_one_before_it(target):
    slow = service_pb2.ModelInferRequest(model_name="slow", id="slow")
    slow.inputs.add(name="INPUT0", datatype="FP32", shape=[2])
    slow.raw_input_contents.append(np.ones(2, np.float32).tobytes())
    got = exchange(target, slow, request(id_="fast"), slow, request(id_="last"))
    assert [g.infer_response.id for g in got] == ["slow", "fast", "slow", "last"]


@pytest.mark.peer
def test_an_error_leaves_the_stream_open(target):
    got = exchange(target, request(), request(model="nosuch"), request(width=15), request(id_="after"))
    assert [bool(g.error_message) for g in got] == [False, True, True, False]
    assert got[1].error_message == "Request for unknown model: 'nosuch' is not found"
    # Both are wrong; the original names the one that its hash map gives first.
    text = got[2].error_message.replace("INPUT1", "INPUT0")
    assert text.startswith("[request id: 42] unexpected shape for input 'INPUT0' for model 'simple'.")
    assert [g.infer_response.id for g in got] == ["42", "42", "42", "after"]


@pytest.mark.peer
def test_every_answer_says_that_it_is_the_final_one(target):
    got = exchange(target, request())
    assert got[0].infer_response.parameters["triton_final_response"].bool_param is True


@pytest.mark.peer
def test_asking_for_an_empty_final_response_gives_no_more_answers(target):
    asking = request()
    asking.parameters["triton_enable_empty_final_response"].bool_param = True
    assert len(exchange(target, asking, request())) == 2


@pytest.mark.peer
def test_half_closing_at_once_still_gives_every_answer(target):
    got = exchange(target, *(request(id_=str(i)) for i in range(50)))
    assert [g.infer_response.id for g in got] == [str(i) for i in range(50)]


@pytest.mark.peer
def test_a_stream_without_requests_ends_well(target):
    assert exchange(target) == []


@pytest.mark.peer
def test_validation_errors_stay_in_the_stream_with_triton_grpc_error(target):
    got = exchange(target, request(model="nosuch"), request(), metadata=[("triton_grpc_error", "true")])
    assert [bool(g.error_message) for g in got] == [True, False]


@pytest.mark.peer
def test_cancelling_a_stream_leaves_the_server_well(target, grpc_client):
    with grpc.insecure_channel(target.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        waiting: queue.Queue = queue.Queue()
        call = stub.ModelStreamInfer(iter(waiting.get, None), timeout=20)
        waiting.put(request())
        assert next(call).infer_response.id == "42"
        waiting.put(request(id_="lost"))
        call.cancel()
        waiting.put(None)
    clients.assert_simple(grpc_client.infer("simple", clients.simple_inputs(library)))


@pytest.mark.peer
def test_the_aio_client_streams(target):
    async def run():
        async def requests():
            for i in range(10):
                yield {"model_name": "simple", "inputs": clients.simple_inputs(library), "request_id": str(i)}

        async with tritonclient.grpc.aio.InferenceServerClient(target.grpc) as client:
            ids = []
            async for result, error in client.stream_infer(requests(), stream_timeout=20):
                assert error is None
                clients.assert_simple(result)
                ids.append(result.get_response().id)
            return ids

    assert asyncio.run(asyncio.wait_for(run(), 30)) == [str(i) for i in range(10)]
