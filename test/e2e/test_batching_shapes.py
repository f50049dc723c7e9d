"""Which requests share a batch, and that each gets its own rows back; the models are ONNX graphs."""

import json

import numpy as np
import pytest
import tritonclient.grpc as library
from tritonclient.utils import InferenceServerException

import clients
import graphs
import models
import rawhttp
from stage import batching, good

# A batch goes when it is full, when a request does not match, or after a minute: that is, never.
PATIENT = batching("max_queue_delay_microseconds: 60000000")

STEPS = 20_000  # so that a burst of requests meets busy instances, on the fastest machine too


def sums(name: str, rows: int) -> models.Model:
    return models.Model(
        name=name,
        inputs=(models.Tensor("INPUT0", "FP32", (-1, -1)),),
        outputs=(models.Tensor("OUTPUT0", "FP32", (-1,)),),
        max_batch_size=rows,
        versions={1: graphs.row_sums()},
        extra=PATIENT + models.instances(1),
    )


def strings(name: str, rows: int) -> models.Model:
    return models.identity("BYTES", name=name, dims=(-1,), max_batch_size=rows, extra=PATIENT + models.instances(1))


MODELS = [
    sums("shapes", 3),
    sums("sizes", 8),
    strings("strings", 3),
    strings("cut", 2),
    models.Model(
        name="optional",
        backend="identity",
        inputs=(models.Tensor("INPUT0", "FP32", (1,)), models.Tensor("INPUT1", "FP32", (1,), "optional: true ")),
        outputs=(models.Tensor("OUTPUT0", "FP32", (1,)), models.Tensor("OUTPUT1", "FP32", (1,))),
        max_batch_size=2,
        extra=PATIENT,
    ),
    models.Model("auto", versions={1: graphs.slow_increment(STEPS)}, config=None),
]


def numbered(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 100, shape).astype(np.float32)


def test_only_requests_of_one_shape_share_a_batch(stage):
    """[2,3] waits for its like; [2,5] sends it off; of [2,5] three make a full batch."""
    arrays = [numbered(seed, 1, 2, n) for seed, n in enumerate([3, 3, 5, 5, 5])]
    first = stage.queue("shapes", arrays[0])
    first.append(stage.send("shapes", arrays[1]))
    stage.await_pending("shapes", 2)
    third = stage.send("shapes", arrays[2])
    for outcome, array in zip(good(*first), arrays):
        np.testing.assert_array_equal(outcome.array, array.sum(axis=2))
    stage.await_pending("shapes", 1)
    assert stage.batches("shapes") == {2: 1}
    rest = [stage.send("shapes", a) for a in arrays[3:]]
    for outcome, array in zip(good(third, *rest), arrays[2:]):
        np.testing.assert_array_equal(outcome.array, array.sum(axis=2))
    assert stage.batches("shapes") == {2: 1, 3: 1}


def test_requests_of_several_rows_get_their_own_rows(stage):
    arrays = [numbered(i, n, 4, 3) for i, n in enumerate([3, 1, 4])]
    calls = [stage.send("sizes", a, via) for a, via in zip(arrays, ["http", "grpc", "stream"])]
    for outcome, array in zip(good(*calls), arrays):
        np.testing.assert_array_equal(outcome.array, array.sum(axis=2))
    assert stage.batches("sizes") == {8: 1}


def test_strings_of_different_lengths_share_a_batch(stage):
    arrays = [
        np.array([[b"", b"short"]], np.object_),
        np.array([["h\u00e4\u00df\u20ac".encode(), b"x" * 3000]], np.object_),
        np.array([[b"\x00\xff", b"end"]], np.object_),
    ]
    calls = [stage.send("strings", a, via) for a, via in zip(arrays, ["grpc", "http", "aio"])]
    for outcome, array in zip(good(*calls), arrays):
        np.testing.assert_array_equal(outcome.array, array)
    assert stage.batches("strings") == {3: 1}


CUT = b"\x01\x00\x00\x00a" + b"\xff\x00\x00\x00b"  # the second string claims more bytes than there are


def cut_http(stage, model: str) -> str:
    head = {"name": "INPUT0", "shape": [1, 2], "datatype": "BYTES", "parameters": {"binary_data_size": len(CUT)}}
    text = json.dumps({"inputs": [head]}).encode()
    headers = {"Inference-Header-Content-Length": len(text)}
    reply = rawhttp.exchange(stage.http, rawhttp.request(f"/v2/models/{model}/infer", text + CUT, headers=headers))
    assert reply.status == 400, reply.text
    return json.loads(reply.body)["error"]


def cut_grpc(stage, model: str) -> str:
    given = library.InferInput("INPUT0", [1, 2], "BYTES")
    given._raw_content = CUT
    with library.InferenceServerClient(stage.grpc) as client, pytest.raises(InferenceServerException) as caught:
        client.infer(model, [given])
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    return caught.value.message()


def test_requests_with_a_cut_string_fail_alone(stage):
    arrays = [np.array([[b"one", b"two"]], np.object_), np.array([[b"three", b"four"]], np.object_)]
    calls = stage.queue("cut", arrays[0])
    bad = [stage.submit(cut, stage, "cut") for cut in (cut_http, cut_grpc)]
    for call in bad:
        assert "INPUT0" in call.result(10) and "255" in call.result(10), "the text names the input and the length"
    stage.await_pending("cut", 1)
    calls.append(stage.send("cut", arrays[1]))
    for outcome, array in zip(good(*calls), arrays):
        np.testing.assert_array_equal(outcome.array, array)
    got = stage.stats("cut")
    assert (got["inference_stats"]["success"]["count"], got["inference_stats"]["fail"]["count"]) == (2, 2)
    assert (got["inference_count"], got["execution_count"]) == (2, 1)
    assert stage.failures("cut") == {"BACKEND": 2}


def test_requests_with_and_without_an_optional_input_do_not_share_a_batch(stage):
    def send(*values):
        with library.InferenceServerClient(stage.grpc) as client:
            given = [
                clients.tensor(library, f"INPUT{i}", "FP32", np.full((1, 1), v, np.float32))
                for i, v in enumerate(values)
            ]
            result = client.infer("optional", given)
        return [float(result.as_numpy(f"OUTPUT{i}")[0, 0]) for i in range(2)]

    stage.watch("optional")
    both = stage.submit(send, 1, 2)
    stage.await_pending("optional", 1)
    one = stage.submit(send, 3)  # another set of inputs: the first goes alone
    assert both.result(10) == [1, 2]
    stage.await_pending("optional", 1)
    assert stage.batches("optional") == {1: 1}
    assert sorted([stage.submit(send, 4).result(10), one.result(10)]) == [[3, 0], [4, 0]]
    assert stage.batches("optional") == {1: 1, 2: 1}


def test_a_model_without_a_configuration_makes_batches_of_up_to_four(stage):
    """Auto-complete gives it dynamic batching of preferred size 4, and two instances."""
    stage.watch("auto")
    array = numbered(1, 1, 4)
    with library.InferenceServerClient(stage.grpc) as client:
        config = client.get_model_config("auto", as_json=True)["config"]
        assert config["dynamic_batching"] == {"preferred_batch_size": [4]}
        assert config["max_batch_size"] == 4
        assert config["instance_group"][0]["count"] == 2
        for burst in range(20):
            calls = [
                stage.submit(client.infer, "auto", [clients.tensor(library, "INPUT0", "FP32", array * i)])
                for i in range(40)
            ]
            for i, call in enumerate(calls):
                np.testing.assert_array_equal(call.result(20).as_numpy("OUTPUT0"), array * i + STEPS)
            if 4 in stage.batches("auto"):
                break
    got = stage.batches("auto")
    assert set(got) <= {1, 2, 3, 4} and 4 in got, got
    assert sum(size * n for size, n in got.items()) == 40 * (burst + 1)
