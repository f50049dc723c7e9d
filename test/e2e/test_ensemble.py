"""Ensembles of ONNX and Python models with the official clients: what the real tritonserver answers, ours answers.

The tests marked peer also run against a server with the repository that `python test/e2e/pipelines.py DIR` writes, under
--model-control-mode=explicit --load-model='*'.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import queue
import signal
import threading
import types

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

import clients
import faults
import pipelines
import pymodels
from server import get, post, wait_until

ROW = np.array([[1, 2, 3, 4]], np.float32)


@dataclasses.dataclass
class Address:
    http: str
    grpc: str
    metrics: str


@pytest.fixture(scope="module")
def ours(request, tmp_path_factory):
    given = {p: request.config.getoption(f"--target-{p}") for p in ("http", "grpc", "metrics")}
    if given["http"]:
        yield Address(**given)
        return
    repository = pipelines.write(tmp_path_factory.mktemp("repository"))
    with pymodels.serve(repository, "--model-control-mode=explicit", "--load-model=*", "--allow-client-shm=true") as server:
        server.wait_ready()
        yield Address(server.http, server.grpc, server.metrics)
        assert server.process.poll() is None, f"the server died:\n{server.log}"


@pytest.fixture(params=["http", "grpc"])
def client(request, ours):
    """A client and its library, for each protocol."""
    library = clients.LIBRARIES[request.param]
    made = library.InferenceServerClient(getattr(ours, request.param))
    yield types.SimpleNamespace(call=made, library=library, protocol=request.param)
    made.close()


def ask(client, model: str, **more):
    """Sends X, or the arrays that are given, and returns the result."""
    arrays = more.pop("arrays", {"X": ("FP32", more.pop("x", ROW))})
    inputs = [clients.tensor(client.library, name, wire, array) for name, (wire, array) in arrays.items()]
    outputs = [client.library.InferRequestedOutput(o) for o in more.pop("outputs", [])] or None
    return client.call.infer(model, inputs, outputs=outputs, **more)


def failure(client, model: str, **more) -> str:
    with pytest.raises(InferenceServerException) as caught:
        ask(client, model, **more)
    return caught.value.message()


def parameters(client, result) -> dict:
    got = result.get_response()
    if client.protocol == "http":
        return got["parameters"]
    return {k: getattr(v, v.WhichOneof("parameter_choice")) for k, v in got.parameters.items()}


@pytest.mark.peer
@pytest.mark.parametrize(
    "model, factor, plus",
    [("chain", 6, 3), ("outer", 12, 6), ("classes", 2, 0), ("batch_of_whole", 20, 0), ("no_batch", 20, 0), ("optional", 2, 0), ("narrow", 2, 0)],
)
@pytest.mark.parametrize("rows", [1, 5])
def test_the_steps_follow_each_other(client, model, factor, plus, rows):
    x = np.arange(4 * rows, dtype=np.float32).reshape(rows, 4)
    np.testing.assert_array_equal(ask(client, model, x=x).as_numpy("Y"), x * factor + plus)


@pytest.mark.peer
def test_branches_come_together(client):
    a, b = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), np.int32)
    arrays = {"A": ("INT32", a), "B": ("INT32", b)}
    got = ask(client, "diamond", arrays=arrays)
    np.testing.assert_array_equal(got.as_numpy("S"), 2 * a)
    np.testing.assert_array_equal(got.as_numpy("T"), a - b)
    got = ask(client, "diamond", arrays=arrays, outputs=["S"])
    np.testing.assert_array_equal(got.as_numpy("S"), 2 * a)
    assert got.as_numpy("T") is None


def test_only_what_is_wanted_runs(client):
    """The real server cannot do this one: it says that there is a deadlock."""
    a = np.ones((1, 16), np.int32)
    got = ask(client, "diamond", arrays={"A": ("INT32", a), "B": ("INT32", a)}, outputs=["T"])
    np.testing.assert_array_equal(got.as_numpy("T"), 0 * a)


@pytest.mark.peer
def test_strings_go_from_step_to_step(client):
    p, q = (np.array([words], np.object_) for words in ([b"a", b"", "h\u00e4".encode()], [b"x", b"y" * 1000, b""]))
    got = ask(client, "strings", arrays={"P": ("BYTES", p), "Q": ("BYTES", q)}).as_numpy("R")
    assert got.tolist() == [[b"axa", b"y" * 1000, "h\u00e4h\u00e4".encode()]]


@pytest.mark.peer
def test_an_optional_input_may_be_left_out(client):
    arrays = {"X": ("FP32", ROW), "M": ("FP32", 10 * ROW)}
    np.testing.assert_array_equal(ask(client, "optional", arrays=arrays).as_numpy("Y"), 22 * ROW)


@pytest.mark.peer
def test_a_step_is_told_what_the_client_says(client):
    got = ask(client, "told", request_id="seven", sequence_id=5, sequence_start=True, priority=1, timeout=1000000, parameters={"word": "x", "n": 3})
    words = got.as_numpy("WORDS")[0, 0].decode().split(" ", 3)
    assert words[:3] == ["seven", "5", "1"]
    assert json.loads(words[3]) == {"word": "x", "n": 3}
    assert parameters(client, got) == {"sequence_id": 5, "sequence_start": True, "sequence_end": False}


@pytest.mark.peer
def test_answers_say_which_sequence_they_belong_to(client):
    assert parameters(client, ask(client, "chain")) == {"sequence_id": 0, "sequence_start": False, "sequence_end": False}
    got = parameters(client, ask(client, "chain", sequence_id="text", sequence_end=True))
    assert got == {"sequence_id": "text", "sequence_start": False, "sequence_end": True}


@pytest.mark.peer
def test_classes_have_the_labels_of_the_step(client):
    inputs = [clients.tensor(client.library, "X", "FP32", ROW)]
    got = client.call.infer("classes", inputs, outputs=[client.library.InferRequestedOutput("Y", class_count=2)])
    assert got.as_numpy("Y").tolist() == [[b"8.000000:3:three", b"6.000000:2:two"]]


@pytest.mark.peer
@pytest.mark.parametrize(
    "model, more, want",
    [
        ("chain", {"x": -ROW}, "in ensemble 'chain', Failed to process the request(s) for model 'echo_0_0', message: ValueError: a negative number"),
        ("outer", {"x": -ROW}, "in ensemble 'outer', in ensemble 'chain', Failed to process the request(s) for model 'echo_0_0'"),
        ("narrow", {"x": ROW[:, :3], "request_id": "9"}, "in ensemble 'narrow', [request id: 9] unexpected shape for input 'INPUT0' for model 'double'. Expected [-1,4], got [1,3]. "),
        ("chain", {"x": ROW[:, :3]}, "[request id: <id_unknown>] unexpected shape for input 'X' for model 'chain'. Expected [-1,4], got [1,3]. "),
        ("chain", {"x": np.ones((9, 4), np.float32)}, "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'chain'"),
        ("chain", {"outputs": ["Z"]}, "unexpected inference output 'Z' for model 'chain'"),
        ("chain", {"model_version": "3"}, "Request for unknown model: 'chain' version 3 is not found"),
    ],
)
def test_errors_say_where(client, model, more, want):
    assert failure(client, model, **more).startswith(want)


@pytest.mark.peer
def test_an_ensemble_describes_itself(client, ours):
    if client.protocol == "http":
        metadata, config = client.call.get_model_metadata("chain"), client.call.get_model_config("chain")
    else:
        metadata = client.call.get_model_metadata("chain", as_json=True)
        config = client.call.get_model_config("chain", as_json=True)["config"]
    assert metadata["platform"] == config["platform"] == "ensemble"
    assert [s["model_name"] for s in config["ensemble_scheduling"]["step"]] == ["double", "echo", "triple"]
    assert not config.get("instance_group") and not config.get("optimization")
    assert client.call.is_model_ready("chain")


def statistics(address: str, model: str) -> dict:
    return json.loads(get(address, f"/v2/models/{model}/stats").body)["model_stats"][0]


def counts(address: str, model: str) -> dict:
    got = statistics(address, model)
    all = {key: value["count"] for key, value in got["inference_stats"].items()}
    return {"inferences": got["inference_count"], "executions": got["execution_count"], **all}


def metric(address: str, name: str, *labels: str) -> float:
    lines = get(address, "/metrics").body.decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{") and all(label in line for label in labels))


@pytest.mark.peer
def test_an_ensemble_counts_its_own_requests(client, ours):
    before = counts(ours.http, "chain"), counts(ours.http, "echo")
    failed = metric(ours.metrics, "nv_inference_request_failure", 'model="chain"', 'reason="OTHER"')
    ask(client, "chain")
    ask(client, "chain", x=np.ones((3, 4), np.float32))
    failure(client, "chain", x=-ROW)
    failure(client, "chain", x=ROW[:, :2])

    def grown(after, before):
        return {key: after[key] - before[key] for key in after if after[key] != before[key]}

    # The real server counts after it has answered.
    wait_until(lambda: grown(counts(ours.http, "chain"), before[0]).get("fail") == 2, 5, "the failure's count")
    run = dict.fromkeys(("success", "queue", "compute_input", "compute_infer", "compute_output"), 2)
    assert grown(counts(ours.http, "chain"), before[0]) == {"inferences": 4, "executions": 2, **run, "fail": 2}
    # A Python model that raises has run.
    assert grown(counts(ours.http, "echo"), before[1]) == {"inferences": 4, "executions": 3, **run, "fail": 1}
    assert metric(ours.metrics, "nv_inference_request_failure", 'model="chain"', 'reason="OTHER"') == failed + 2
    chain, echo = statistics(ours.http, "chain"), statistics(ours.http, "echo")
    assert chain["inference_stats"]["success"]["ns"] >= chain["inference_stats"]["compute_infer"]["ns"] > 0
    assert {b["batch_size"] for b in chain["batch_stats"]} >= {1, 3} and echo["last_inference"] > 0


@pytest.mark.peer
def test_tensors_in_shared_memory(client):
    handle = shm.create_shared_memory_region("ens", f"/ens_{client.protocol}", 2 * ROW.nbytes)
    try:
        shm.set_shared_memory_region(handle, [ROW])
        client.call.register_system_shared_memory("ens", f"/ens_{client.protocol}", 2 * ROW.nbytes)
        given = client.library.InferInput("X", [1, 4], "FP32")
        given.set_shared_memory("ens", ROW.nbytes)
        wanted = client.library.InferRequestedOutput("Y")
        wanted.set_shared_memory("ens", ROW.nbytes, offset=ROW.nbytes)
        client.call.infer("chain", [given], outputs=[wanted])
        np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, [1, 4], offset=ROW.nbytes), 6 * ROW + 3)
    finally:
        client.call.unregister_system_shared_memory("ens")
        shm.destroy_shared_memory_region(handle)


class Stream:
    def __init__(self, address: str):
        self.client = tritonclient.grpc.InferenceServerClient(address)
        self.answers: queue.Queue = queue.Queue()
        self.client.start_stream(lambda result, error: self.answers.put((result, error)))

    def ask(self, model: str, x: np.ndarray) -> tuple[list, InferenceServerException | None]:
        """What the model answers, up to the final response or an error."""
        inputs = [clients.tensor(tritonclient.grpc, "X", "FP32", x)]
        self.client.async_stream_infer(model, inputs, enable_empty_final_response=True)
        got = []
        while True:
            result, error = self.answers.get(timeout=20)
            if error:
                return got, error
            if result.get_response().outputs:
                got.append(result.as_numpy("Y")[0].tolist())
            if result.get_response().parameters["triton_final_response"].bool_param:
                return got, None


@pytest.fixture
def stream(ours):
    made = Stream(ours.grpc)
    yield made
    made.client.stop_stream()
    made.client.close()


@pytest.mark.peer
def test_a_decoupled_step_makes_the_ensemble_decoupled(stream, ours):
    x = np.array([[3, 9, 1, 2]], np.float32)
    want = [(3 * (2 * x[0] + i)).tolist() for i in range(6)]
    assert stream.ask("stream", x) == (want, None)
    assert stream.ask("stream", 0 * x) == ([], None)
    assert stream.ask("chain", ROW) == ([(6 * ROW + 3)[0].tolist()], None)
    config = json.loads(get(ours.http, "/v2/models/stream/config").body)
    assert config["model_transaction_policy"] == {"decoupled": True}


@pytest.mark.peer
def test_an_error_of_a_decoupled_step_ends_the_request(stream):
    _, error = stream.ask("stream", np.array([[3, 1, 1, 1]], np.float32))
    assert error is not None and "in ensemble 'stream', no more" in error.message()


def test_answers_of_many_responses_keep_their_order(stream):
    """With the real server they come as the steps after the decoupled one happen to end."""
    x = np.array([[4, 999, 0, 0]], np.float32)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        load = [pool.submit(stream_alone, stream.client, i) for i in range(4)]
        got, error = stream.ask("stream", x)
        assert error is None and [y[0] for y in got] == [3.0 * (8 + i) for i in range(8)]
        for one in load:
            one.result()


def stream_alone(client, i: int) -> None:
    result = client.infer("chain", [clients.tensor(tritonclient.grpc, "X", "FP32", ROW + i)])
    np.testing.assert_array_equal(result.as_numpy("Y"), 6 * (ROW + i) + 3)


@pytest.mark.peer
def test_generate_stream_answers_each_response(ours):
    got = post(ours.http, "/v2/models/stream/generate_stream", json.dumps({"X": [1, 9, 0, 0]}))
    events = [json.loads(line.removeprefix("data: ")) for line in got.body.decode().split("\n\n") if line]
    assert [e["Y"][0] for e in events] == [6.0, 9.0]


@pytest.mark.peer
def test_many_callers_share_the_steps(client, ours):
    def one(i: int) -> None:
        made = client.library.InferenceServerClient(getattr(ours, client.protocol))
        for _ in range(10):
            result = made.infer("outer", [clients.tensor(client.library, "X", "FP32", ROW + i)])
            np.testing.assert_array_equal(result.as_numpy("Y"), 12 * (ROW + i) + 6)
        made.close()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(8)))


def index(client) -> dict:
    got = client.call.get_model_repository_index()
    rows = got if client.protocol == "http" else [{"name": m.name, "state": m.state, "reason": m.reason} for m in got.models]
    return {row["name"]: (row.get("state", ""), row.get("reason", "")) for row in rows}


READY, UNLOADED = ("READY", ""), ("UNAVAILABLE", "unloaded")


def becomes(client, **want) -> None:
    wait_until(lambda: {name: index(client)[name] for name in want} == want, 20, f"{want}, got {index(client)}")


@pytest.mark.peer
def test_an_ensemble_comes_and_goes_with_its_models(client):
    client.call.unload_model("double")
    becomes(client, double=UNLOADED, chain=UNLOADED, outer=UNLOADED, echo=READY, triple=READY)
    assert not client.call.is_model_ready("chain")
    assert "Request for unknown model: 'chain' has no available versions" in failure(client, "chain")
    client.call.load_model("double")
    becomes(client, double=READY, chain=READY, outer=READY, classes=READY, stream=READY)
    np.testing.assert_array_equal(ask(client, "outer").as_numpy("Y"), 12 * ROW + 6)

    config = client.call.get_model_config("double") if client.protocol == "http" else client.call.get_model_config("double", as_json=True)["config"]
    client.call.load_model("double", config=json.dumps({**config, "max_batch_size": 4}))
    assert not client.call.is_model_ready("outer")
    with pytest.raises(InferenceServerException) as caught:
        client.call.load_model("chain")
    assert "load failed for model 'chain': ensemble chain allows maximum batch size 8, but it contains model double which only allows maximum batch size to be 4" in caught.value.message()
    client.call.load_model("double", config=json.dumps(config))
    becomes(client, double=READY, chain=READY, outer=READY)


def test_parts_that_nobody_asked_for_go_with_the_ensemble(serve, tmp_path):
    repository = pipelines.write(tmp_path / "repository")
    server = serve("--model-repository", repository, pymodels.PYTHON, "--model-control-mode=explicit", "--load-model=classes", "--load-model=labelled")
    server.wait_ready()
    client = types.SimpleNamespace(call=tritonclient.http.InferenceServerClient(server.http), protocol="http", library=tritonclient.http)
    becomes(client, classes=READY, double=READY, labelled=READY, chain=("", ""), echo=("", ""))
    client.call.unload_model("classes", unload_dependents=True)
    becomes(client, classes=UNLOADED, double=UNLOADED, labelled=READY)
    client.call.close()


def test_a_killed_worker_fails_only_its_batch(serve, tmp_path):
    """The Python step in the middle loses its worker under load: the batch that ran fails, and says which step it was."""
    repository = pipelines.write(tmp_path / "repository")
    flags = [pymodels.PYTHON, "--model-control-mode=explicit", "--load-model=chain"]
    server = serve("--model-repository", repository, *flags)
    server.wait_ready()
    stop, errors, answered = threading.Event(), [], [0] * 6

    def load(i: int) -> None:
        x = ROW + i
        with tritonclient.http.InferenceServerClient(server.http) as client:
            while not stop.is_set():
                try:
                    got = client.infer("chain", [clients.tensor(tritonclient.http, "X", "FP32", x)]).as_numpy("Y")
                except InferenceServerException as error:
                    errors.append(error.message())
                    continue
                assert (got == 6 * x + 3).all(), got
                answered[i] += 1

    with concurrent.futures.ThreadPoolExecutor(len(answered)) as pool:
        running = [pool.submit(load, i) for i in range(len(answered))]
        try:
            for _ in range(20):  # a worker may be killed between two batches
                before = list(answered)
                wait_until(lambda: all(a > b + 3 for a, b in zip(answered, before)), 30, "answers to every caller")
                seen = len(errors)
                os.kill(faults.worker(server.process.pid, "echo"), signal.SIGKILL)
                after = list(answered)
                wait_until(lambda: all(a > b for a, b in zip(answered, after)), 30, "answers after the worker's end")
                assert len(errors) - seen <= 1, errors  # echo's requests run one by one
                if errors:
                    break
        finally:
            stop.set()
        for r in running:
            r.result(20)
    assert errors, "no batch ran when the worker was killed"
    for text in errors:
        assert text.startswith("in ensemble 'chain', ") and "killed by signal 9" in text and "(step 'echo')" in text, text


FAULTS = [
    (pipelines.ensemble("bad", [pipelines.X], [pipelines.Y], pipelines.link("nosuch", "X", "Y")), "ensemble bad contains models that are not available or ambiguous: nosuch"),
    (pipelines.ensemble("bad", [pipelines.X], [pipelines.Y], pipelines.link("double:3", "X", "Y")), "ensemble 'bad' depends on 'double' whose required version 3 is not loaded."),
    (pipelines.ensemble("bad", [pipelines.X], [pipelines.Y], ("bad", {"X": "X"}, {"Y": "Y"})), "circular dependency between ensembles: bad -> ... -> bad -> bad"),
    (
        pipelines.ensemble("bad", [pipelines.Tensor("X", "INT32", (4,))], [pipelines.Y], pipelines.link("double", "X", "Y")),
        "in ensemble bad, ensemble tensor X: inconsistent data type: TYPE_INT32 is inferred from model bad while TYPE_FP32 is inferred from model double",
    ),
    (
        pipelines.ensemble("bad", [pipelines.Tensor("X", "FP32", (5,))], [pipelines.Y], pipelines.link("double", "X", "Y")),
        "in ensemble bad, ensemble tensor X: inconsistent shape: [-1,5] is inferred from model bad while [-1,4] is inferred from model double",
    ),
    (
        pipelines.ensemble("bad", [pipelines.X], [pipelines.Y], pipelines.link("double", "X", "Y"), batch=16),
        "ensemble bad allows maximum batch size 16, but it contains model double which only allows maximum batch size to be 8",
    ),
    (pipelines.ensemble("bad", [pipelines.X], [pipelines.Y], ("double", {"NOPE": "X"}, {"OUTPUT0": "Y"})), "in ensemble bad, ensemble tensor X is mapping to non-existing input NOPE in model double"),
    (pipelines.ensemble("bad", [pipelines.X], [pipelines.Y], ("double", {"INPUT0": "X"}, {"NOPE": "Y"})), "in ensemble bad, ensemble tensor Y is mapped from non-existing output NOPE in model double"),
    (
        pipelines.ensemble("bad", [pipelines.A], [pipelines.S], ("add_sub", {"INPUT0": "A"}, {"OUTPUT0": "S"})),
        "in ensemble bad, input INPUT1 in model add_sub is not mapped to any ensemble tensors",
    ),
    (
        pipelines.ensemble("bad", [pipelines.X], [pipelines.Y], pipelines.link("many", "X", "t"), ("maybe", {"INPUT0": "X", "INPUT1": "t"}, {"OUTPUT0": "Y"})),
        "in ensemble bad, step of model 'bad' receives inputs originated from different decoupled models",
    ),
]


@pytest.mark.peer
@pytest.mark.parametrize("model, want", FAULTS, ids=[want.split(",")[-1][:40] for _, want in FAULTS])
def test_a_wrong_ensemble_does_not_load(client, model, want):
    """The configuration comes with the load, in place of a good model's."""
    name = "told"
    text = model.config.replace('"bad"', f'"{name}"')
    want = want.replace("bad", name)
    with pytest.raises(InferenceServerException) as caught:
        client.call.load_model(name, config=as_json(text))
    assert f"load failed for model '{name}': {want}" in caught.value.message()
    client.call.unload_model(name)
    client.call.load_model(name)
    assert client.call.is_model_ready(name)


def as_json(text: str) -> str:
    from google.protobuf import json_format, text_format
    from tritonclient.grpc import model_config_pb2

    return json_format.MessageToJson(text_format.Parse(text, model_config_pb2.ModelConfig()), preserving_proto_field_name=True)

