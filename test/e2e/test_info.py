"""Health, metadata, configuration, index and statistics through the official clients."""

import json
import re

import numpy as np
import pytest
from google.protobuf import json_format
from tritonclient.utils import InferenceServerException

import clients
import server

EXTENSIONS = {"classification", "schedule_policy", "model_configuration", "binary_tensor_data", "parameters", "statistics", "trace"}

SIMPLE = {
    "name": "simple",
    "versions": ["1"],
    "inputs": [{"name": f"INPUT{i}", "datatype": "INT32", "shape": [-1, 16]} for i in range(2)],
    "outputs": [{"name": f"OUTPUT{i}", "datatype": "INT32", "shape": [-1, 16]} for i in range(2)],
}


@pytest.fixture(params=["http", "grpc"])
def client(request, http_client, grpc_client):
    return {"http": http_client, "grpc": grpc_client}[request.param]


def plain(client, answer):
    """The grpc client's messages as the http client's dictionaries."""
    if isinstance(answer, (dict, list)):
        return answer
    # Shapes and counts are 64 bits wide, which protobuf's JSON writes as strings.
    text = json_format.MessageToJson(answer, preserving_proto_field_name=True)
    return json.loads(text)


@pytest.mark.peer
def test_the_server_is_live_and_ready(client):
    assert client.is_server_live() is True
    assert client.is_server_ready() is True


@pytest.mark.peer
@pytest.mark.parametrize(
    "name, version, ready",
    [
        ("simple", "", True),
        ("simple", "1", True),
        ("simple", "9", False),
        ("versions_all", "3", True),
        ("nosuch", "", False),
    ],
)
def test_a_model_says_whether_it_is_ready(client, name, version, ready):
    assert client.is_model_ready(name, version) is ready


@pytest.mark.peer
def test_server_metadata_lists_the_extensions(client):
    got = plain(client, client.get_server_metadata())
    assert got["name"] in ("shoal", "triton") and re.match(r"\d+\.\d+", got["version"])
    assert set(got["extensions"]) >= EXTENSIONS


@pytest.mark.peer
def test_model_metadata_has_the_batch_dimension_in_front(client):
    got = plain(client, client.get_model_metadata("simple"))
    got.pop("platform")  # onnxruntime_onnx here, python on the peer
    for tensor in got["inputs"] + got["outputs"]:
        tensor["shape"] = [int(d) for d in tensor["shape"]]
    assert got == SIMPLE


def test_model_metadata_names_the_platform(client):
    assert plain(client, client.get_model_metadata("simple"))["platform"] == "onnxruntime_onnx"


@pytest.mark.peer
def test_metadata_lists_every_ready_version_or_the_one_asked_for(client):
    assert plain(client, client.get_model_metadata("versions_all"))["versions"] == ["1", "3"]
    assert plain(client, client.get_model_metadata("versions_all", "1"))["versions"] == ["1"]
    assert plain(client, client.get_model_metadata("versions_latest"))["versions"] == ["3"]


@pytest.mark.peer
def test_model_config_is_completed(client):
    got = plain(client, client.get_model_config("simple"))
    got = got.get("config", got)
    assert got["name"] == "simple" and got["max_batch_size"] == 8
    assert [i["name"] for i in got["input"]] == ["INPUT0", "INPUT1"]
    group = got["instance_group"][0]
    assert (group["name"], group["kind"], group["count"]) == ("simple_0", "KIND_CPU", 1)
    assert got["optimization"]["input_pinned_memory"]["enable"] is True


@pytest.mark.peer
@pytest.mark.parametrize("call", ["get_model_metadata", "get_model_config"])
def test_unknown_models_and_versions_are_not_found(client, call):
    with pytest.raises(InferenceServerException) as caught:
        getattr(client, call)("nosuch")
    assert caught.value.message() == "Request for unknown model: 'nosuch' is not found"
    assert caught.value.status() in ("404", "StatusCode.NOT_FOUND")
    with pytest.raises(InferenceServerException) as caught:
        getattr(client, call)("simple", "9")
    assert caught.value.message() == "Request for unknown model: 'simple' version 9 is not found"


@pytest.mark.peer
def test_the_index_lists_versions_by_name(client):
    got = plain(client, client.get_model_repository_index())
    got = got["models"] if isinstance(got, dict) else got
    rows = [(m["name"], m.get("version"), m.get("state")) for m in got]
    assert rows == sorted(rows)
    assert ("simple", "1", "READY") in rows
    assert {r for r in rows if r[0] == "versions_all"} == {
        ("versions_all", "1", "READY"),
        ("versions_all", "3", "READY"),
    }
    assert all(m.get("reason") is None for m in got if m.get("state") == "READY")


@pytest.mark.peer
def test_statistics_count_requests_rows_and_executions(client, http_client):
    def counts():
        one = plain(client, client.get_inference_statistics("versions_all", "1"))["model_stats"][0]
        success = one["inference_stats"]["success"]
        keys = ("inference_count", "execution_count")
        return [int(one.get(k, 0)) for k in keys] + [int(success.get("count", 0))]

    rows = np.ones((3, 4), np.float32)
    before = counts()
    inputs = [clients.tensor(clients.LIBRARIES["http"], "INPUT0", "FP32", rows)]
    http_client.infer("versions_all", inputs, model_version="1")
    assert [b - a for a, b in zip(before, counts())] == [3, 1, 1]


@pytest.mark.peer
def test_refused_requests_count_in_no_statistic(client, target):
    def fails():
        one = plain(client, client.get_inference_statistics("simple"))["model_stats"][0]
        return one["inference_stats"].get("fail", {}).get("count", 0)

    before = fails()
    request = clients.simple_json()
    request["inputs"].pop()
    assert clients.infer_json(target.http, request).status == 400
    assert fails() == before


@pytest.mark.peer
def test_statistics_of_an_unknown_model_are_refused(client):
    with pytest.raises(InferenceServerException) as caught:
        client.get_inference_statistics("nosuch")
    assert caught.value.message() == "requested model 'nosuch' is not available"
    assert caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")


@pytest.mark.peer
@pytest.mark.parametrize("call", ["load_model", "unload_model"])
def test_load_and_unload_are_refused_without_explicit_control(client, call):
    with pytest.raises(InferenceServerException) as caught:
        getattr(client, call)("simple")
    assert caught.value.message() == "explicit model load / unload is not allowed if polling is enabled"
    assert caught.value.status() in ("503", "StatusCode.UNAVAILABLE")


@pytest.mark.peer
def test_statistics_of_all_models_are_sorted_and_complete(target):
    stats = json.loads(server.get(target.http, "/v2/models/stats").body)["model_stats"]
    names = [s["name"] for s in stats]
    assert names == sorted(names) and "simple" in names
    keys = ["name", "version", "last_inference", "inference_count", "execution_count"]
    keys += ["inference_stats", "response_stats", "batch_stats", "memory_usage"]
    assert list(stats[0]) == keys
