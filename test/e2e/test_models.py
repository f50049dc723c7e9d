"""What a model's configuration and its graph change for the client."""

import json
import time
from concurrent import futures

import numpy as np
import pytest
import tritonclient.http as library
from tritonclient.utils import InferenceServerException

import clients
import models
import server

FOUR = np.arange(4, dtype=np.float32).reshape(1, 4)


def infer(client, model, *arrays, **more):
    names = [f"INPUT{i}" for i in range(len(arrays))]
    inputs = [clients.tensor(library, n, "FP32", a) for n, a in zip(names, arrays)]
    return client.infer(model, inputs, **more)


def config(target, model: str) -> dict:
    return json.loads(server.get(target.http, f"/v2/models/{model}/config").body)


@pytest.mark.peer
@pytest.mark.parametrize("model, version, factor", [
    ("versions_all", "", 3),
    ("versions_all", "1", 2),
    ("versions_all", "3", 3),
    ("versions_latest", "", 3),
    ("versions_specific", "", 2),
    ("versions_specific", "1", 2),
])  # fmt: skip
def test_the_version_policy_decides_what_runs(http_client, model, version, factor):
    got = infer(http_client, model, FOUR, model_version=version)
    np.testing.assert_array_equal(got.as_numpy("OUTPUT0"), FOUR * factor)
    assert got.get_response()["model_version"] == (version or {2: "1", 3: "3"}[factor])


@pytest.mark.peer
@pytest.mark.parametrize(
    "model, version", [("versions_latest", "1"), ("versions_specific", "3"), ("versions_all", "2")]
)
def test_a_version_outside_the_policy_is_not_found(http_client, model, version):
    with pytest.raises(InferenceServerException) as caught:
        infer(http_client, model, FOUR, model_version=version)
    assert caught.value.message() == f"Request for unknown model: '{model}' version {version} is not found"


def test_a_model_without_configuration_is_completed_from_its_graph(target, http_client):
    got = config(target, "auto")
    assert (got["platform"], got["backend"], got["max_batch_size"]) == ("onnxruntime_onnx", "onnxruntime", 4)
    assert [(i["name"], i["data_type"], i["dims"]) for i in got["input"]] == [
        ("INPUT0", "TYPE_FP32", [16]),
        ("INPUT1", "TYPE_FP32", [16]),
    ]
    assert got["dynamic_batching"]["preferred_batch_size"] == [4]
    group = got["instance_group"][0]
    assert (group["name"], group["kind"], group["count"]) == ("auto", "KIND_CPU", 2)
    assert got["default_model_filename"] == "model.onnx"
    a = np.arange(32, dtype=np.float32).reshape(2, 16)
    np.testing.assert_array_equal(infer(http_client, "auto", a, a).as_numpy("OUTPUT0"), a + a)


def test_a_graph_with_a_fixed_first_dimension_is_not_batched(target, http_client):
    got = config(target, "auto_fixed")
    assert got["max_batch_size"] == 0 and "dynamic_batching" not in got
    assert [i["dims"] for i in got["input"]] == [[2, 16], [2, 16]]
    a = np.arange(32, dtype=np.int64).reshape(2, 16)
    result = http_client.infer("auto_fixed", clients.pair(library, "INT64", a, a))
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), a + a)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 5), (4, 1, 1000)], ids=str)
def test_variable_dimensions_are_free(http_client, shape):
    array = np.random.default_rng(3).integers(0, 9, shape).astype(np.float32)
    got = infer(http_client, "row_sums", array).as_numpy("OUTPUT0")
    np.testing.assert_array_equal(got, array.sum(axis=2))


@pytest.mark.parametrize("array", [
    np.eye(3, dtype=np.float32),
    np.ones((2, 5), np.float32),
    np.zeros((2, 5), np.float32),
])  # fmt: skip
def test_an_output_may_have_a_shape_that_depends_on_the_data(http_client, array):
    got = infer(http_client, "nonzero", array)
    want = np.array(np.nonzero(array))
    assert got.get_output("OUTPUT0")["shape"] == list(want.shape)
    np.testing.assert_array_equal(got.as_numpy("OUTPUT0").reshape(want.shape), want)


def test_the_client_sees_the_shape_before_reshape(target, http_client):
    metadata = json.loads(server.get(target.http, "/v2/models/reshaped").body)
    assert metadata["inputs"][0]["shape"] == [-1, 1]
    array = np.array([[1.5], [2.5], [3.5]], np.float32)
    got = infer(http_client, "reshaped", array).as_numpy("OUTPUT0")
    np.testing.assert_array_equal(got, array)


@pytest.mark.peer
def test_an_optional_input_may_be_left_out(http_client):
    got = infer(http_client, "optional", FOUR[0])
    np.testing.assert_array_equal(got.as_numpy("OUTPUT0"), FOUR[0])
    got = infer(http_client, "optional", FOUR[0], FOUR[0] + 1)
    np.testing.assert_array_equal(got.as_numpy("OUTPUT1"), FOUR[0] + 1)


@pytest.mark.peer
def test_a_missing_required_input_beside_an_optional_one(target):
    request = {"inputs": []}
    answer = clients.infer_json(target.http, request, model="optional")
    want = (
        "[request id: <id_unknown>] expected number of inputs between 1 and 2 but got 0 inputs for model 'optional'. "
        "Got input(s) [], but missing required input(s) ['INPUT0']. Please provide all required input(s)."
    )
    assert (answer.status, clients.error_of(answer)) == (400, want)


def test_an_empty_batch_of_strings_keeps_its_shape(http_client):
    array = np.empty((0, 3), np.object_)
    got = http_client.infer("identity_bytes", [clients.tensor(library, "INPUT0", "BYTES", array)])
    assert got.get_output("OUTPUT0")["shape"] == [0, 3]


def test_the_identity_backend_sets_parameters(target):
    request = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]}
    got = json.loads(clients.infer_json(target.http, request, model="slow").body)["parameters"]
    want = {"param0": "an example string parameter", "param1": 42, "param2": False, "param3": 123.123}
    assert got == want


def test_instances_run_side_by_side(serve):
    """Three requests of 300 ms on three instances take much less than 900 ms."""
    running = serve(wanted=(models.slow("three", 300, count=3),)).wait_ready()
    request = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]}
    begin = time.monotonic()
    with futures.ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(clients.infer_json, running.http, request, model="three") for _ in range(3)]
        assert [c.result().status for c in calls] == [200, 200, 200]
    assert time.monotonic() - begin < 0.8
