"""Triton's Python contract through the official clients; recorded.json is what a real tritonserver 2.51 said."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

import clients
import pymodels
from server import get

RECORDED = json.loads((pymodels.DATA / "acts" / "recorded.json").read_text())


BATCHED_IO = """
    import triton_python_backend_utils as pb_utils
    class TritonPythonModel:
        def execute(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * x.as_numpy()) for x in r.inputs()]) for r in requests]
"""
BATCHED_IO_CONFIG = """
    max_batch_size: 4
    input { name: "X" data_type: TYPE_FP32 dims: 4 }
    output { name: "Y" data_type: TYPE_FP32 dims: 4 }
    batch_input { kind: BATCH_ELEMENT_COUNT target_name: "N" data_type: TYPE_FP32 source_input: "X" }
    batch_output { target_name: "Y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "X" }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = pymodels.copy(tmp_path_factory.mktemp("python"), "acts", "auto")
    pymodels.write(repository, "batched_io", BATCHED_IO, BATCHED_IO_CONFIG)
    with pymodels.serve(repository, "--log-verbose=1") as server:
        yield server.wait_ready()
        assert server.process.poll() is None, f"the server died:\n{server.log}"


def ask(server, act: str, protocol: str = "http", **more):
    library = clients.LIBRARIES[protocol]
    client = library.InferenceServerClient(server.http if protocol == "http" else server.grpc)
    act_, x = np.array([act.encode()], np.object_), np.array([1, 2, 3], np.float32)
    try:
        return client.infer("acts", [clients.tensor(library, "ACT", "BYTES", act_), clients.tensor(library, "X", "FP32", x)], **more)
    finally:
        client.close()


def said(server, act: str, **more) -> dict:
    return json.loads(ask(server, act, **more).as_numpy("Z")[0])


@pytest.mark.parametrize("act", sorted(a for a in RECORDED if "error" in RECORDED[a]))
def test_errors_have_the_texts_of_a_real_server(server, act):
    with pytest.raises(InferenceServerException) as error:
        ask(server, act)
    text = re.sub(r"[^ ]*/acts/1/model\.py\(\d+\)", "@FILE@(@LINE@)", error.value.message())
    assert text == RECORDED[act]["error"]


GRPC = {"error": "INTERNAL", "error_unknown": "UNKNOWN", "error_not_found": "NOT_FOUND", "error_invalid_arg": "INVALID_ARGUMENT",
        "error_unavailable": "UNAVAILABLE", "error_unsupported": "UNIMPLEMENTED", "error_already_exists": "ALREADY_EXISTS",
        "error_cancelled": "CANCELLED"}  # fmt: skip


@pytest.mark.parametrize("act", sorted(GRPC))
def test_error_codes_are_the_clients_statuses(server, act):
    with pytest.raises(InferenceServerException) as over_http:
        ask(server, act)
    assert over_http.value.status() == str(RECORDED[act]["status"])
    with pytest.raises(InferenceServerException) as over_grpc:
        ask(server, act, "grpc")
    assert over_grpc.value.status() == f"StatusCode.{GRPC[act]}"


@pytest.mark.parametrize("act", sorted(a for a in RECORDED if "outputs" in RECORDED[a]))
def test_answers_are_those_of_a_real_server(server, act):
    got = ask(server, act).get_response()["outputs"]
    want = [{k: o[k] for k in ("name", "datatype", "shape")} for o in RECORDED[act]["outputs"]]
    assert [{k: o[k] for k in ("name", "datatype", "shape")} for o in got] == want


@pytest.mark.parametrize("act", ["returns_none", "returns_list_of_none"])
def test_a_request_without_an_answer_fails_at_once(server, act):
    with pytest.raises(InferenceServerException, match="gave no response for this request"):
        ask(server, act)


@pytest.mark.parametrize("act", ["double", "sender", "sender_then_final"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_strings_and_numbers_come_back(server, act, protocol):
    got = ask(server, act, protocol)
    assert got.as_numpy("Y").tolist() == [2, 4, 6]
    assert got.as_numpy("Z").tolist() == ["äöü".encode(), b"\x00\x7f", b"7", b""]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_outputs_come_in_the_order_that_the_model_gave_them(server, protocol):
    got = ask(server, "turned", protocol).get_response()
    outputs = got["outputs"] if protocol == "http" else [{"name": o.name} for o in got.outputs]
    assert [o["name"] for o in outputs] == [o["name"] for o in RECORDED["turned"]["outputs"]] == ["Z", "Y"]


def test_what_is_no_string_is_sent_as_its_text(server):
    got = ask(server, "odd_strings").as_numpy("Z")
    assert [v.decode() for v in got] == RECORDED["odd_strings"]["outputs"][0]["data"]


def test_a_model_with_batch_inputs_and_outputs_is_served_without_them(server):
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    with tritonclient.http.InferenceServerClient(server.http) as client:
        got = client.infer("batched_io", [clients.tensor(tritonclient.http, "X", "FP32", x)])
    assert got.as_numpy("Y").tolist() == (2 * x).tolist()


def test_what_the_request_says_reaches_the_model(server):
    outputs = [tritonclient.http.InferRequestedOutput("Z")]
    got = said(server, "tells_request", request_id="r1", parameters={"p": "v", "n": 3, "b": True}, timeout=5_000_000, outputs=outputs)
    assert got == {
        "request_id": "r1", "correlation_id": 0, "flags": 0, "timeout": 5000000, "parameters": {"p": "v", "n": 3, "b": True},
        "wanted": ["Z"], "names": ["ACT", "X"], "cancelled": False, "cpu": True, "shape": [3], "numpy": "float32", "missing": None,
    }  # fmt: skip


def test_requests_that_the_model_keeps_stay_what_they_were(server):
    told = [said(server, "keeps", request_id=f"r{i}")["ids"] for i in range(4)]
    assert told == [[f"r{i}" for i in range(n + 1)] for n in range(4)]


def test_a_sequence_reaches_the_model(server):
    got = said(server, "tells_request", sequence_id=7, sequence_start=True, sequence_end=True)
    assert (got["correlation_id"], got["flags"]) == (7, 3)
    assert said(server, "tells_request", sequence_id="seven")["correlation_id"] == "seven"


def test_initialize_gets_strings_and_the_whole_configuration(server):
    got = said(server, "tells_args")
    assert got["types"] == ["str"]
    assert got["args"].pop("model_repository").endswith("/acts")
    assert got["args"] == {"model_instance_kind": "CPU", "model_instance_name": "acts_0_0", "model_instance_device_id": "0",
                           "model_version": "1", "model_name": "acts"}  # fmt: skip
    assert got["config"]["input"][1]["data_type"] == "TYPE_FP32" and got["config"]["max_batch_size"] == 0
    assert said(server, "tells_dir")["dir"].endswith("/acts/1")
    assert said(server, "tells_argv")["argv"] == [""]


def test_response_parameters_reach_the_client(server):
    assert ask(server, "response_parameters").get_response()["parameters"] == {"text": "x", "count": 3, "yes": True}
    parameters = ask(server, "response_parameters", "grpc").get_response().parameters
    assert parameters["text"].string_param == "x" and parameters["count"].int64_param == 3 and parameters["yes"].bool_param is True


def test_dlpack_and_responses_say_what_they_hold(server):
    assert said(server, "tells_dlpack") == {"there": [1, 2, 3], "back": [1, 2, 3], "again": [1, 2, 3], "device": [1, 0]}
    got = said(server, "tells_response")
    assert json.loads(got["parameters"]) == {"a": 1, "b": "x", "c": True}
    assert (got["has_error"], got["message"], got["names"], got["got"]) == ([False, True], "m", ["Y", "Z"], "Y")


def test_an_exception_that_ends_a_capsule_is_the_one_that_is_told(server):
    with pytest.raises(InferenceServerException, match="KeyError: 'the capsule ends with this frame'"):
        ask(server, "dlpack_dropped")


def test_the_log_has_what_the_model_logs_and_prints(server):
    ask(server, "logs")
    for level, text in (("INFO", "plain"), ("ERROR", '"as error"'), ("WARN", '"a warning"'), ("DEBUG", '"a detail"'), ("INFO", "printed")):
        server.wait_for_log(rf"level={level} msg={text} model=acts instance=acts_0_0")


def test_what_is_not_served_yet_is_told(server):
    with pytest.raises(InferenceServerException, match="RESCHEDULE is not served yet"):
        ask(server, "reschedule")
    with pytest.raises(InferenceServerException, match="Model 'other' is not ready"):
        ask(server, "bls")


def test_auto_complete_config_is_the_configuration(server):
    config = json.loads(get(server.http, "/v2/models/auto/config").body)
    assert config["max_batch_size"] == 8 and "dynamic_batching" in config
    inputs = [(i["name"], i["data_type"], i["dims"], i["optional"]) for i in config["input"]]
    assert inputs == [("X", "TYPE_FP32", [-1], False), ("BY", "TYPE_FP32", [1], True)]
    library = clients.LIBRARIES["http"]
    client = library.InferenceServerClient(server.http)
    x = clients.tensor(library, "X", "FP32", np.ones((2, 3), np.float32))
    by = clients.tensor(library, "BY", "FP32", np.array([[3], [4]], np.float32))
    assert client.infer("auto", [x]).as_numpy("Y").tolist() == [[1, 1, 1], [1, 1, 1]]
    assert client.infer("auto", [x, by]).as_numpy("Y").tolist() == [[3, 3, 3], [4, 4, 4]]
    client.close()


BAD = {
    "syntax": ("def x(:", r"(?s)SyntaxError: invalid syntax.*line 1"),
    "import": ("import not_there", r"ModuleNotFoundError: No module named 'not_there'"),
    "noclass": ("class Other: pass", r"has no model: expected a class TritonPythonModel"),
    "init": ("class TritonPythonModel:\n  def initialize(self, args): raise RuntimeError('no weights')", "RuntimeError: no weights"),
    "exits": ("import sys\nclass TritonPythonModel:\n  def initialize(self, args): sys.exit(3)", "SystemExit: 3|exit code 3"),
    "complete": ("class TritonPythonModel:\n  auto_complete_config = staticmethod(lambda c: None)",
                 "auto_complete_config function in model 'complete' must return a valid pb.ModelConfig object"),
}  # fmt: skip
CONFIG = 'input [{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }] output [{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }]'


def test_models_that_do_not_load_say_why_in_the_index(tmp_path):
    for name, (code, _) in BAD.items():
        pymodels.write(tmp_path, name, code, CONFIG)
    with pymodels.serve(tmp_path, "--exit-on-error=false", "--strict-readiness=false") as server:
        server.wait_for_log("msg=ready after", timeout=60)
        client = tritonclient.http.InferenceServerClient(server.http)
        index = {m["name"]: m for m in client.get_model_repository_index()}
        client.close()
    for name, (_, want) in BAD.items():
        assert (index[name]["version"], index[name]["state"]) == ("1", "UNAVAILABLE")
        assert re.search(want, index[name]["reason"]), f"{name}: got {index[name]['reason']!r}, want {want!r} in it"
