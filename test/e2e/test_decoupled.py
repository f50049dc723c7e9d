"""Decoupled models over ModelStreamInfer: any number of responses to a request."""

from __future__ import annotations

import json
import pathlib
import queue
import threading
import urllib.error
import urllib.request

import grpc
import numpy as np
import pytest
import tritonclient.grpc as library
from tritonclient.grpc import service_pb2, service_pb2_grpc

from server import LOOPBACK, PORTS, Server, wait_until

POLICY = "model_transaction_policy { decoupled: true }\n"
REPEAT = (
    'backend: "repeat"\n'
    + POLICY
    + """
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] }, { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] } ]
"""
)
SQUARE = (
    'backend: "square"\n'
    + POLICY
    + """
input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
"""
)
IDENTITY = 'backend: "identity"\nmax_batch_size: 8\n' + (
    'input { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] }\noutput { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] }\n'
)


def parameters(**values: int) -> str:
    return "".join(f'parameters {{ key: "{k}" value: {{ string_value: "{v}" }} }}\n' for k, v in values.items())


MODELS = {
    "repeat": REPEAT,
    "square": SQUARE,
    "square_batched": SQUARE + "max_batch_size: 8\ndynamic_batching { }\n",
    "square_faults": SQUARE + parameters(CUSTOM_FAIL_COUNT=2, CUSTOM_EMPTY_COUNT=1),
    "square_counted": SQUARE + parameters(CUSTOM_INFER_DELAY_NS=40_000_000, CUSTOM_OUTPUT_DELAY_NS=20_000_000, CUSTOM_FAIL_COUNT=2, CUSTOM_EMPTY_COUNT=1),
    "square_slow": SQUARE + parameters(CUSTOM_INFER_DELAY_NS=100_000_000, CUSTOM_OUTPUT_DELAY_NS=100_000_000, CUSTOM_CANCEL_DELAY_NS=100_000_000),
    "ordinary": IDENTITY,
    "once": IDENTITY + POLICY,
}


def write(root: pathlib.Path) -> pathlib.Path:
    for name, text in MODELS.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(text)
    return root


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    with Server("--model-repository", write(tmp_path_factory.mktemp("decoupled")), *PORTS, *LOOPBACK) as started:
        started.wait_ready()
        yield started
        assert started.process.poll() is None, f"the server died:\n{started.log}"


@pytest.fixture
def stub(server: Server):
    with grpc.insecure_channel(server.grpc) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def request(model: str, id_: str = "", *, empty: bool = False, **tensors: np.ndarray) -> service_pb2.ModelInferRequest:
    made = service_pb2.ModelInferRequest(model_name=model, id=id_)
    for name, value in tensors.items():
        datatype = {"int32": "INT32", "uint32": "UINT32"}[value.dtype.name]
        made.inputs.add(name=name, datatype=datatype, shape=value.shape)
        made.raw_input_contents.append(value.tobytes())
    if empty:
        made.parameters["triton_enable_empty_final_response"].bool_param = True
    return made


def repeat(values: list[int], id_: str = "", delay: int = 0, wait: int = 0, **more) -> service_pb2.ModelInferRequest:
    return request(
        "repeat",
        id_,
        IN=np.array(values, np.int32),
        DELAY=np.full(len(values), delay, np.uint32),
        WAIT=np.array([wait], np.uint32),
        **more,
    )


def square(n: int, id_: str = "", model: str = "square", **more) -> service_pb2.ModelInferRequest:
    shape = (1, 1) if model == "square_batched" else (1,)
    return request(model, id_, IN=np.full(shape, n, np.int32), **more)


def exchange(stub, *requests, **more) -> list[service_pb2.ModelStreamInferResponse]:
    return list(stub.ModelStreamInfer(iter(requests), timeout=30, **more))


def final(got: service_pb2.ModelStreamInferResponse) -> bool:
    return got.infer_response.parameters["triton_final_response"].bool_param


def number(got: service_pb2.ModelStreamInferResponse, output: int = 0) -> int:
    assert not got.error_message, got.error_message
    return int(np.frombuffer(got.infer_response.raw_output_contents[output], np.int32)[0])


def statistics(server: Server, model: str) -> dict:
    with urllib.request.urlopen(f"http://{server.http}/v2/models/{model}/stats") as reply:
        return json.load(reply)["model_stats"][0]


def test_each_element_is_a_response_in_order(stub):
    got = exchange(stub, repeat([7, 8, 9], "a"))
    # Outputs come in the order of their names: IDX, OUT.
    assert [(number(g, 1), number(g, 0)) for g in got] == [(7, 0), (8, 1), (9, 2)]
    assert [(g.infer_response.id, g.infer_response.model_name, g.infer_response.model_version) for g in got] == [("a", "repeat", "1")] * 3
    assert [final(g) for g in got] == [False] * 3


def test_the_empty_final_response_comes_when_it_is_asked_for(stub):
    got = exchange(stub, repeat([5], "a", empty=True), repeat([], "b", empty=True), repeat([], "c"))
    ends = [g.infer_response for g in got if final(g)]
    assert sorted(e.id for e in ends) == ["a", "b"]
    assert all(len(e.outputs) == 0 and e.model_name == "repeat" for e in ends)
    assert len(got) == 3


def test_only_the_outputs_that_are_wanted_are_sent(stub):
    wanted = repeat([1])
    wanted.outputs.add(name="OUT")
    got = exchange(stub, wanted)
    assert [o.name for o in got[0].infer_response.outputs] == ["OUT"]


def test_the_official_client_gets_the_responses(server: Server):
    answers: queue.Queue = queue.Queue()
    with library.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        tensor = library.InferInput("IN", [1], "INT32")
        tensor.set_data_from_numpy(np.array([4], np.int32))
        client.async_stream_infer("square", [tensor], request_id="x", enable_empty_final_response=True)
        for _ in range(4):
            result, error = answers.get(timeout=10)
            assert error is None
            assert result.as_numpy("OUT").tolist() == [4]
        result, error = answers.get(timeout=10)
        assert error is None
        assert result.get_response().parameters["triton_final_response"].bool_param is True
        assert client.get_model_config("square").config.model_transaction_policy.decoupled is True


def test_responses_come_while_the_execution_runs_and_after_it(stub):
    """WAIT is how long the execution takes; the instance is free after it."""
    got = exchange(stub, repeat([1], "slow", delay=400), repeat([2], "fast"))
    assert [(g.infer_response.id, number(g, 1)) for g in got] == [("fast", 2), ("slow", 1)]
    stream = stub.ModelStreamInfer(iter([repeat([3], wait=60_000)]), timeout=30)
    assert number(next(stream), 1) == 3
    stream.cancel()


def test_64_requests_side_by_side_keep_their_own_order(stub):
    got = exchange(stub, *(repeat([100 * i + k for k in range(20)], str(i), delay=1, empty=True) for i in range(64)))
    by_id: dict[str, list] = {str(i): [] for i in range(64)}
    for g in got:
        by_id[g.infer_response.id].append(g)
    for i in range(64):
        mine = by_id[str(i)]
        assert [number(g, 1) for g in mine[:-1]] == [100 * i + k for k in range(20)]
        assert [final(g) for g in mine] == [False] * 20 + [True]


def test_batches_of_decoupled_requests(stub):
    got = exchange(stub, *(square(n, str(n), "square_batched") for n in range(12)))
    assert sorted((g.infer_response.id, number(g)) for g in got) == sorted((str(n), n) for n in range(12) for _ in range(n))


def test_ordinary_models_keep_their_order_beside_decoupled_ones(stub):
    def ordinary(i: int):
        return request("ordinary", f"o{i}", INPUT0=np.array([[i]], np.int32))

    got = exchange(stub, square(3, "d", "square_slow"), *(ordinary(i) for i in range(5)))
    ids = [g.infer_response.id for g in got]
    assert ids == [f"o{i}" for i in range(5)] + ["d"] * 3
    assert [final(g) for g in got] == [True] * 5 + [False] * 3


def test_a_backend_with_one_answer_closes_the_stream_with_it(stub):
    got = exchange(stub, request("once", "x", INPUT0=np.array([[6]], np.int32), empty=True))
    assert [(number(g), final(g)) for g in got] == [(6, True)]


def test_an_error_in_the_middle_is_told_and_more_follows(stub):
    got = exchange(stub, square(5, "e", "square_faults", empty=True))
    assert [bool(g.error_message) for g in got] == [False, False, True, True, False]
    assert got[2].error_message == "simulated failure"
    assert [g.infer_response.id for g in got] == ["e"] * 5
    assert [final(g) for g in got] == [False] * 4 + [True]


def test_a_request_that_does_not_fit_fails_alone(stub):
    bad = request("repeat", "bad", IN=np.array([1, 2], np.int32), DELAY=np.array([0], np.uint32), WAIT=np.array([0], np.uint32))
    wrong = request("repeat", "wrong", IN=np.array([1], np.int32))
    got = {g.infer_response.id: g for g in exchange(stub, bad, wrong, repeat([4], "good"))}
    assert got["bad"].error_message == "expected IN and DELAY shape to match, got [2] and [1]"
    assert final(got["bad"]) is True
    assert got["wrong"].error_message.startswith("[request id: wrong] expected 3 inputs but got 1 inputs for model 'repeat'.")
    assert number(got["good"], 1) == 4


def test_with_triton_grpc_error_the_first_error_ends_the_stream(stub):
    with pytest.raises(grpc.RpcError) as failed:
        exchange(stub, square(4, "e", "square_faults"), metadata=[("triton_grpc_error", "true")])
    assert failed.value.code() == grpc.StatusCode.UNKNOWN
    assert failed.value.details() == "simulated failure"


def test_unary_calls_are_refused(server: Server, stub):
    with pytest.raises(grpc.RpcError) as failed:
        stub.ModelInfer(square(1))
    assert failed.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert failed.value.details() == "ModelInfer RPC doesn't support models with decoupled transaction policy"
    body = json.dumps({"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]}).encode()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{server.http}/v2/models/square/infer", body)
    assert refused.value.code == 501
    assert json.load(refused.value) == {"error": "HTTP end point doesn't support models with decoupled transaction policy"}


def test_responses_are_counted_by_their_index(server: Server, stub):
    assert statistics(server, "square_counted")["response_stats"] == {}
    assert len(exchange(stub, square(4, model="square_counted"))) == 3
    after = statistics(server, "square_counted")["response_stats"]

    names = ("compute_infer", "compute_output", "success", "fail", "empty_response", "cancel")
    assert [[after[str(i)][n]["count"] for n in names] for i in range(4)] == [
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 0, 0, 0, 1, 0],
    ]
    over_grpc = stub.ModelStatistics(service_pb2.ModelStatisticsRequest(name="square_counted")).model_stats[0].response_stats
    for index, stats in after.items():
        for name, both in stats.items():
            got = getattr(over_grpc[index], name)
            assert (got.count, got.ns) == (both["count"], both["ns"])
    one = after["0"]
    assert one["compute_infer"]["ns"] >= 40e6 and one["compute_output"]["ns"] >= 20e6
    assert one["success"]["ns"] == one["compute_infer"]["ns"] + one["compute_output"]["ns"]


def test_a_request_is_counted_once(server: Server, stub):
    before = statistics(server, "square")
    exchange(stub, square(3), square(0), square(2))
    after = wait_until(lambda: (s := statistics(server, "square"))["execution_count"] == before["execution_count"] + 3 and s, 5, "three executions")
    assert after["inference_stats"]["success"]["count"] == before["inference_stats"]["success"]["count"] + 3
    assert after["inference_count"] == before["inference_count"] + 3
    assert statistics(server, "ordinary")["response_stats"] == {}


def test_cancelling_reaches_the_model(server: Server, stub):
    """The response being made is finished and counted, the one after it is the cancelled one."""
    stream = stub.ModelStreamInfer(iter([square(10, model="square_slow")]), timeout=30)
    assert number(next(stream)) == 10
    stream.cancel()
    wait_until(lambda: sum(s["cancel"]["count"] for s in statistics(server, "square_slow")["response_stats"].values()), 10, "the model to notice")
    stats = statistics(server, "square_slow")
    assert sum(s["cancel"]["ns"] for s in stats["response_stats"].values()) >= 100e6
    assert "9" not in stats["response_stats"]
    wait_until(lambda: statistics(server, "square_slow")["inference_stats"]["fail"]["count"] >= 1, 5, "the failure")


def test_a_client_that_goes_away_ends_its_requests(server: Server):
    channel = grpc.insecure_channel(server.grpc)
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    before = statistics(server, "repeat")["inference_stats"]["fail"]["count"]
    stream = stub.ModelStreamInfer(iter([repeat(list(range(1000)), delay=50)]), timeout=60)
    next(stream)
    channel.close()
    wait_until(lambda: statistics(server, "repeat")["inference_stats"]["fail"]["count"] == before + 1, 10, "the request to end")


def test_a_slow_reader_holds_up_nobody_and_little_memory(server: Server, stub):
    """A million responses to a client that does not read them, others beside it."""
    hold = threading.Event()

    def requests():
        yield square(1_000_000, "greedy")
        hold.wait(30)

    with grpc.insecure_channel(server.grpc) as channel:
        stream = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(requests(), timeout=60)
        assert number(next(stream)) == 1_000_000
        before = resident(server)
        for _ in range(200):
            assert len(exchange(stub, square(5))) == 5
        grown = resident(server) - before
        assert grown < 64 << 20, f"memory grew by {grown >> 20} MiB"
        for _ in range(1000):
            assert number(next(stream)) == 1_000_000
        stream.cancel()
        hold.set()


def resident(server: Server) -> int:
    for line in pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")
