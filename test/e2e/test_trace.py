"""Trace settings, and traces in Triton's files."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

import archives
import clients
import models
import pymodels
import server

START = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0", "trace_file": "", "trace_mode": "triton"}


@pytest.fixture
def running(serve):
    return serve(wanted=(models.slow("m", 0),)).wait_ready()


def plain(answer) -> dict:
    """The settings of either protocol in the form of HTTP."""
    if "settings" not in answer:
        return answer
    values = {name: v.get("value", []) for name, v in answer["settings"].items()}
    return {name: v if name == "trace_level" else v[0] for name, v in values.items()}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_settings_of_the_server_and_of_a_model(running, protocol):
    client = clients.LIBRARIES[protocol].InferenceServerClient(getattr(running, protocol))
    json_too = {"as_json": True} if protocol == "grpc" else {}

    def update(**more) -> dict:
        return plain(client.update_trace_settings(**more, **json_too))

    assert plain(client.get_trace_settings(**json_too)) == START
    assert plain(client.get_trace_settings("m", **json_too)) == START
    assert update(settings={"trace_rate": "7"}) == {**START, "trace_rate": "7"}
    assert update(model_name="m", settings={"trace_rate": "5", "trace_count": "3"}) == {**START, "trace_rate": "5", "trace_count": "3"}
    assert update(model_name="m", settings={"trace_rate": None}) == {**START, "trace_rate": "7", "trace_count": "3"}
    assert update(settings={"trace_rate": None}) == START
    for given, text in (
        ({"trace_level": ["TIMESTAMPS"]}, "Attempting to set invalid trace setting :trace file name is not given"),
        ({"trace_rate": "often"}, "Unable to parse 'trace_rate', got: often"),
    ):
        with pytest.raises(InferenceServerException) as caught:
            update(settings=given)
        assert caught.value.message() == text and caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    with pytest.raises(InferenceServerException) as caught:
        client.get_trace_settings("nosuch")
    assert caught.value.message() == "Request for unknown model : nosuch"


def test_answers_over_http(running):
    answer = server.get(running.http, "/v2/trace/setting")
    assert answer.status == 200 and list(json.loads(answer.body)) == list(START)
    answer = server.post(running.http, "/v2/trace/setting", '{"trace_rate": 5}')
    assert (answer.status, clients.error_of(answer)) == (500, "attempt to access JSON non-string as string")
    for body, code, text in (
        ("", 500, "failed to parse the request JSON buffer: The document is empty. at 0"),
        ('{"trace_level": "OFF"}', 500, "attempt to access JSON non-array as array"),
        ('{"trace_file": 5}', 501, "trace file location can not be updated through network protocol"),
    ):
        answer = server.post(running.http, "/v2/models/m/trace/setting", body)
        assert (answer.status, clients.error_of(answer)) == (code, text)
    assert json.loads(server.get(running.http, "/v2/models/m/trace/setting").body) == START
    assert server.get(running.http, "/v2/models/m/versions/1/trace/setting").status == 404


ROW = np.array([[1, 2.5, 3e10, -0.1234567]], np.float32)
ECHO = models.identity("FP32", "m", (4,), max_batch_size=8)
STAMPS = ["REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END", "REQUEST_END"]
WIRE = {
    "http": ["HTTP_RECV_START", "HTTP_RECV_END", "INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END"],
    "grpc": ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "INFER_RESPONSE_COMPLETE", "GRPC_SEND_START", "GRPC_SEND_END"],
}


def ask(running, protocol: str, count: int = 1, **more) -> None:
    library = clients.LIBRARIES[protocol]
    with library.InferenceServerClient(getattr(running, protocol)) as client:
        for _ in range(count):
            client.infer("m", [clients.tensor(library, "INPUT0", "FP32", ROW)], **more)


def stop(running) -> int:
    running.signal()
    return running.wait()


def traces(path) -> dict[int, dict]:
    """The traces of a file by their numbers: the model's part, the times by their names, the tensors."""
    found: dict[int, dict] = {}
    for part in json.loads(path.read_text()):
        one = found.setdefault(part["id"], {"model": None, "times": {}, "tensors": []})
        if "model_name" in part:
            one["model"] = part
        for stamp in part.get("timestamps", ()):
            one["times"][stamp["name"]] = stamp["ns"]
        if "tensor" in part:
            one["tensors"].append((part["activity"], part["tensor"]))
    return found


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_trace_has_times_and_tensors(serve, tmp_path, protocol):
    file = tmp_path / "trace.json"
    flags = ("mode=triton", f"triton,file={file}", "level=TIMESTAMPS", "level=TENSORS", "rate=1")
    running = serve(*(f"--trace-config={f}" for f in flags), wanted=(ECHO,)).wait_ready()
    ask(running, protocol, request_id="r1")
    assert not file.exists()
    assert stop(running) == 0
    (number, trace), = traces(file).items()
    assert trace["model"] == {"id": number, "model_name": "m", "model_version": 1, "request_id": "r1"}
    assert sorted(trace["times"]) == sorted(STAMPS + WIRE[protocol])
    before, after = WIRE[protocol][:2], WIRE[protocol][3:]
    in_order = [trace["times"][name] for name in [*before, *STAMPS, *after]]
    assert in_order == sorted(in_order)
    tensor = {"data": "1,2.5,3e+10,-0.123457", "shape": "1,4", "dtype": "FP32"}
    assert trace["tensors"] == [
        ("TENSOR_QUEUE_INPUT", {"name": "INPUT0", **tensor}),
        ("TENSOR_BACKEND_OUTPUT", {"name": "OUTPUT0", **tensor}),
    ]


def test_settings_change_what_is_traced_while_it_runs(serve, tmp_path):
    file = tmp_path / "trace.json"
    running = serve(f"--trace-config=triton,file={file}", wanted=(ECHO, models.slow("n", 0))).wait_ready()
    client = clients.LIBRARIES["http"].InferenceServerClient(running.http)

    def written(name: str) -> list[int]:
        path = tmp_path / name
        server.wait_until(lambda: path.exists() and path.read_text().endswith("]"), 10, f"{name} of {list(tmp_path.iterdir())}")
        return sorted(traces(path))

    ask(running, "http", 2)
    update = client.update_trace_settings
    update(settings={"trace_level": ["TIMESTAMPS"], "trace_rate": "2", "trace_count": "2"})
    ask(running, "http", 3)
    assert client.get_trace_settings()["trace_count"] == "1"
    ask(running, "grpc", 5)
    assert client.get_trace_settings()["trace_count"] == "0"
    assert written("trace.json.0") == [1, 2]
    update(settings={"trace_level": None, "trace_rate": None, "trace_count": None})
    ask(running, "http", 2)
    got = update("m", settings={"trace_level": ["TENSORS"], "trace_rate": "1", "log_frequency": "3"})
    assert got == {**START, "trace_level": ["TENSORS"], "trace_rate": "1", "log_frequency": "3", "trace_file": str(file)}
    assert client.get_trace_settings("n") == {**START, "trace_file": str(file)}
    ask(running, "http", 4)
    assert written("trace.json.1") == [3, 4, 5]
    assert stop(running) == 0
    assert written("trace.json.2") == [6]
    assert not file.exists()


def test_a_refused_request_is_traced_as_far_as_it_came(serve, tmp_path):
    file = tmp_path / "trace.json"
    flags = (f"triton,file={file}", "level=TIMESTAMPS", "rate=1")
    running = serve(*(f"--trace-config={f}" for f in flags), wanted=(ECHO,)).wait_ready()
    for protocol in ("http", "grpc"):
        with pytest.raises(InferenceServerException):
            ask(running, protocol, outputs=[clients.LIBRARIES[protocol].InferRequestedOutput("NOPE")])
    ask(running, "http")
    assert stop(running) == 0
    got = traces(file)
    assert [sorted(t["times"]) for t in got.values()][:2] == [sorted(WIRE["http"][:2]), sorted(WIRE["grpc"][:2])]
    assert got[3]["model"]["model_name"] == "m"


TWICE = """name: "twice"
platform: "ensemble"
max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] }
ensemble_scheduling {
  step { model_name: "m" model_version: -1 input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "between" } }
  step { model_name: "m" model_version: -1 input_map { key: "INPUT0" value: "between" } output_map { key: "OUTPUT0" value: "OUT" } }
}
"""


def with_ensemble(repository):
    """The repository of ECHO and of an ensemble that runs it twice."""
    folder = repository(ECHO) / "twice"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(TWICE)
    return folder.parent


def test_the_steps_of_an_ensemble_have_traces_of_their_own(serve, repository, tmp_path):
    file = tmp_path / "trace.json"
    flags = (f"triton,file={file}", "level=TIMESTAMPS", "rate=1")
    running = serve("--model-repository", with_ensemble(repository), *(f"--trace-config={f}" for f in flags)).wait_ready()
    library = clients.LIBRARIES["http"]
    with library.InferenceServerClient(running.http) as client:
        client.infer("twice", [clients.tensor(library, "IN", "FP32", ROW)])
    assert stop(running) == 0
    got = traces(file)
    assert [(t["model"]["model_name"], t["model"].get("parent_id")) for t in got.values()] == [("twice", None), ("m", 1), ("m", 1)]
    assert sorted(got[1]["times"]) == sorted(["REQUEST_START", "QUEUE_START", "REQUEST_END", *WIRE["http"]])
    assert sorted(got[2]["times"]) == sorted(got[3]["times"]) == sorted(STAMPS)


def test_settings_without_effect_are_named_at_the_start(serve, tmp_path):
    running = serve("--trace-config=level=TIMESTAMPS", wanted=(ECHO,)).wait_ready()
    running.wait_for_log("none will be taken.*trace file name is not given")
    running = serve(f"--trace-file={tmp_path}/no/trace.json", "--model-repository", tmp_path / "repository")
    assert running.wait() == 1 and "no such file or directory" in running.log


CALLING = """
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            out = []
            for r in requests:
                y = None
                for trace in (r.trace(), None):
                    ask = pb_utils.InferenceRequest(model_name="m", requested_output_names=["OUTPUT0"], inputs=r.inputs(), trace=trace)
                    y = pb_utils.get_output_tensor_by_name(ask.exec(), "OUTPUT0")
                context = pb_utils.Tensor("CONTEXT", np.array([[str(r.trace().get_context())]], np.object_))
                out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", y.as_numpy()), context]))
            return out
"""
CALLING_CONFIG = """max_batch_size: 8 input { name: "INPUT0" data_type: TYPE_FP32 dims: 4 }
    output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: 4 }, { name: "CONTEXT" data_type: TYPE_STRING dims: 1 } ]"""


def with_calling(repository):
    """The repository of ECHO and of a Python model that calls it twice, once within its trace."""
    return pymodels.write(repository(ECHO), "calling", CALLING, CALLING_CONFIG)


def context_of(running) -> str:
    """Asks the model that calls, and returns the context that it saw."""
    library = clients.LIBRARIES["http"]
    with library.InferenceServerClient(running.http) as client:
        return client.infer("calling", [clients.tensor(library, "INPUT0", "FP32", ROW)]).as_numpy("CONTEXT")[0, 0].decode()


def test_calls_of_a_python_model_are_in_its_trace(serve, repository, tmp_path):
    file = tmp_path / "trace.json"
    flags = (f"triton,file={file}", "level=TIMESTAMPS", "rate=1")
    running = serve("--model-repository", with_calling(repository), pymodels.PYTHON, *(f"--trace-config={f}" for f in flags)).wait_ready()
    assert context_of(running) == "None"  # there is none without OpenTelemetry
    assert stop(running) == 0
    got = traces(file)
    assert [(t["model"]["model_name"], t["model"].get("parent_id")) for t in got.values()] == [("calling", None), ("m", 1)]
    assert sorted(next(iter(v for k, v in got.items() if k != 1))["times"]) == sorted(STAMPS)


def test_requests_of_other_dialects_are_traced(serve, tmp_path):
    """Multi Model Server's: their traces are as those over HTTP."""
    file, source = tmp_path / "trace.json", tmp_path / "ok"
    source.mkdir()
    (source / "ok.py").write_text(archives.HANDLERS["ok"])
    archives.pack(tmp_path, "mms", "ok", source / "ok.py", tmp_path, "1.0")
    config = tmp_path / "config.properties"
    config.write_text(archives.MMS_CONFIG + f"model_store={tmp_path}\nload_models=ok.mar\ndefault_workers_per_model=1\n")
    flags = (f"triton,file={file}", "level=TIMESTAMPS", "rate=1")
    running = serve("--model-server=mms", "--model-server-config", config, *(f"--trace-config={f}" for f in flags))
    running.wait_for_log("Model server started.")
    for path in ("/predictions/ok", "/predictions/nosuch"):
        server.post(running.address("inference"), path, b"abc")
    assert stop(running) == 0
    (got,) = traces(file).values()
    assert got["model"]["model_name"] == "ok" and sorted(got["times"]) == sorted([*STAMPS, *WIRE["http"]])
