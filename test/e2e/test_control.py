"""Models that are loaded, unloaded and changed while the server runs: --model-control-mode explicit and poll."""

from __future__ import annotations

import base64
import json
import shutil
import textwrap
from concurrent import futures

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

import clients
import faults
import graphs
import models
import pymodels
import rawhttp
import server
from server import wait_until

ROW = np.array([[1, 2, 3, 4]], np.float32)
SCALED = {
    "backend": "onnxruntime",
    "max_batch_size": 8,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
}


def scaled(name: str = "scaled", factor: float = 2.0, **more) -> models.Model:
    """A model that multiplies by a number, so that answers tell what was loaded."""
    return models.Model(
        name=name,
        inputs=(models.Tensor("INPUT0", "FP32", (4,)),),
        outputs=(models.Tensor("OUTPUT0", "FP32", (4,)),),
        max_batch_size=8,
        versions={1: graphs.scale(factor)},
        **more,
    )


def broken() -> models.Model:
    """Its configuration wants another type than its graph."""
    return models.Model(
        name="broken",
        inputs=(models.Tensor("INPUT0", "INT32", (4,)),),
        outputs=(models.Tensor("OUTPUT0", "FP32", (4,)),),
        max_batch_size=8,
        versions={1: graphs.scale(1.0)},
    )


@pytest.fixture(params=["http", "grpc"])
def protocol(request):
    return request.param


@pytest.fixture
def explicit(serve, protocol):
    """A server under explicit control with a client for it, and its repository."""

    def start(*wanted: models.Model, load: tuple[str, ...] = (), flags: tuple[str, ...] = ()):
        running = serve("--model-control-mode=explicit", *(f"--load-model={m}" for m in load), *flags, wanted=wanted).wait_ready()
        return connect(running, protocol)

    return start


def connect(running: server.Server, protocol: str):
    return clients.LIBRARIES[protocol].InferenceServerClient(getattr(running, protocol)), running


def index(client) -> list[dict]:
    """The repository's index, the same for both protocols."""
    got = client.get_model_repository_index()
    if isinstance(got, list):
        return got
    fields = ("name", "version", "state", "reason")
    return [{f: getattr(m, f) for f in fields if getattr(m, f)} for m in got.models]


def factor(client, model: str = "scaled", version: str = "") -> float:
    """What the model multiplies by."""
    library = clients.LIBRARIES["http" if "http" in type(client).__module__ else "grpc"]
    answer = client.infer(model, [clients.tensor(library, "INPUT0", "FP32", ROW)], model_version=version)
    return float(answer.as_numpy("OUTPUT0")[0, 0])


def refused(act, *args, **more) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as caught:
        act(*args, **more)
    return caught.value.status(), caught.value.message()


BAD = ("400", "StatusCode.INVALID_ARGUMENT")
INTERNAL = ("500", "StatusCode.INTERNAL")
UNKNOWN = ("404", "StatusCode.NOT_FOUND")


def test_models_are_loaded_and_unloaded(explicit):
    client, running = explicit(scaled(), models.simple(), broken(), load=("simple",))
    assert index(client) == [{"name": "broken"}, {"name": "scaled"}, {"name": "simple", "version": "1", "state": "READY"}]
    assert client.is_server_ready() and not client.is_model_ready("scaled")
    assert refused(factor, client)[0] in UNKNOWN
    client.load_model("scaled")
    assert client.is_model_ready("scaled") and factor(client) == 2
    client.load_model("scaled")  # nothing has changed
    client.unload_model("scaled")
    wait_until(lambda: {"name": "scaled", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"} in index(client), 10, "the unload")
    assert client.is_server_ready() and not client.is_model_ready("scaled")
    code, text = refused(factor, client)
    assert code in UNKNOWN and text.endswith("Request for unknown model: 'scaled' has no available versions")
    client.unload_model("scaled")
    client.unload_model("nosuch")
    client.load_model("scaled")
    assert factor(client) == 2
    assert "model_repository(unload_dependents)" in json.loads(server.get(running.http, "/v2").body)["extensions"]


def test_loads_that_fail_say_why_and_make_the_server_unready(explicit, tmp_path):
    client, running = explicit(scaled(), broken(), load=("scaled",))
    (code, text) = refused(client.load_model, "nosuch")
    assert code in INTERNAL and text == "failed to load 'nosuch', failed to poll from model repository"
    assert client.is_server_ready()
    (tmp_path / "repository" / "scaled" / "config.pbtxt").write_text("input {")
    assert refused(client.load_model, "scaled")[0] in INTERNAL and client.is_server_ready()
    code, text = refused(client.load_model, "broken")
    assert code in BAD
    assert text.startswith("load failed for model 'broken': version 1 is at UNAVAILABLE state: Invalid argument: ") and text.endswith(";\n")
    assert "TYPE_INT32" in text
    line = next(m for m in index(client) if m["name"] == "broken")
    assert line["state"] == "UNAVAILABLE" and line["reason"].startswith("Invalid argument: ") and line["reason"] in text
    assert not client.is_server_ready() and client.is_server_live() and factor(client) == 2
    client.unload_model("broken")
    assert not client.is_server_ready()  # as in Triton: only a good load helps


def test_a_reload_that_fails_keeps_the_old_one_serving(explicit, tmp_path):
    client, running = explicit(scaled(), load=("scaled",))
    folder = tmp_path / "repository" / "scaled"
    good = (folder / "1" / "model.onnx").read_bytes()
    (folder / "1" / "model.onnx").write_bytes(b"no graph")
    assert refused(client.load_model, "scaled")[0] in BAD
    (line,) = index(client)
    assert line["state"] == "READY" and line["reason"]
    assert factor(client) == 2 and client.is_server_ready()
    (folder / "config.pbtxt").write_text("max_batch_size: many")
    code, text = refused(client.load_model, "scaled")
    assert code in INTERNAL and text.startswith("failed to load 'scaled', failed to poll from model repository") and "config.pbtxt:1:" in text
    assert factor(client) == 2
    (folder / "1" / "model.onnx").write_bytes(graphs.scale(3.0))
    (folder / "config.pbtxt").write_text(scaled().config_text())
    client.load_model("scaled")
    assert factor(client) == 3 and index(client) == [{"name": "scaled", "version": "1", "state": "READY"}]
    assert good != (folder / "1" / "model.onnx").read_bytes()


def test_a_configuration_can_be_overridden(explicit, tmp_path):
    client, running = explicit(scaled(), load=("scaled",))

    def max_batch_size():
        return json.loads(server.get(running.http, "/v2/models/scaled/config").body)["max_batch_size"]

    client.load_model("scaled", config=json.dumps({**SCALED, "max_batch_size": 4}))
    assert max_batch_size() == 4 and factor(client) == 2
    client.load_model("scaled")
    assert max_batch_size() == 4  # until the file is newer
    (tmp_path / "repository" / "scaled" / "config.pbtxt").write_text(scaled().config_text() + "\n")
    client.load_model("scaled")
    assert max_batch_size() == 8
    code, text = refused(client.load_model, "scaled", config='{"max_batch_size": 4')
    assert code in INTERNAL and text.startswith("failed to load 'scaled', failed to poll from model repository")
    code, text = refused(client.load_model, "scaled", config='{"colour": "red"}')
    assert code in INTERNAL and "colour" in text
    assert max_batch_size() == 8 and factor(client) == 2 and client.is_server_ready()


def test_files_can_be_overridden(explicit):
    client, running = explicit(scaled(), load=("scaled",))
    config = json.dumps(SCALED)
    client.load_model("scaled", config=config, files={"file:1/model.onnx": graphs.scale(7.0)})
    assert factor(client) == 7
    client.load_model("sent", config=config, files={"file:5/model.onnx": graphs.scale(5.0)})
    assert factor(client, "sent") == 5 and {"name": "sent", "version": "5", "state": "READY"} in index(client)
    client.load_model("scaled")
    assert factor(client) == 2
    code, text = refused(client.load_model, "scaled", files={"file:1/model.onnx": graphs.scale(9.0)})
    assert code in INTERNAL and text.startswith("failed to load 'scaled', failed to poll from model repository")
    assert "'config' must be specified" in text
    for path in ("../1/model.onnx", "/etc/shoal", "1/../../model.onnx", "1\\model.onnx", ""):
        code, text = refused(client.load_model, "scaled", config=config, files={f"file:{path}": b"x"})
        assert code in INTERNAL and "is not a path inside the model's folder" in text
    assert factor(client) == 2
    client.unload_model("sent")
    assert refused(client.load_model, "sent")[0] in INTERNAL


def test_a_configuration_cannot_lead_out_of_the_folder(explicit, tmp_path):
    client, running = explicit(scaled(), scaled("other", 3.0), load=("scaled",))
    repository = tmp_path / "repository"
    (tmp_path / "secret").write_text("secret\n")
    (repository / "scaled" / "labels.txt").write_text("a\nb\n")
    (repository / "scaled" / "link").symlink_to(tmp_path / "secret")
    (repository / "scaled" / "1" / "link.onnx").symlink_to(repository / "other" / "1" / "model.onnx")
    out = [dict(SCALED["output"][0], label_filename="../../secret")]
    sample = {"name": "s", "batch_size": 1, "inputs": {"INPUT0": {"data_type": "TYPE_FP32", "dims": [4], "input_data_file": "../../../secret"}}}
    for config in (
        {**SCALED, "output": out},
        {**SCALED, "default_model_filename": "../../other/1/model.onnx"},
        {**SCALED, "default_model_filename": str(repository / "other" / "1" / "model.onnx")},
        {**SCALED, "output": [dict(SCALED["output"][0], label_filename="link")]},
        {**SCALED, "default_model_filename": "link.onnx"},
        {**SCALED, "model_warmup": [sample]},
        {**SCALED, "colour": "red"},
    ):
        code, text = refused(client.load_model, "scaled", config=json.dumps(config))
        assert "secret\n" not in text and text.startswith(("failed to load 'scaled'", "load failed for model 'scaled'")), text
        assert factor(client) == 2 and client.is_server_ready()


def test_a_payload_of_2_gb_is_refused_before_it_is_sent(serve):
    running = serve("--model-control-mode=explicit", wanted=(scaled(),)).wait_ready()
    before = running.rss()
    for size, status in ((2**31 - 1, 400), (2**31, 400), (2_800_000_000, 400)):
        with rawhttp.connect(running.http) as sock:
            sock.sendall(f"POST /v2/repository/models/scaled/load HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n{{\"parameters\"".encode())
            assert rawhttp.read_reply(sock, 0).status == status
    assert running.rss() - before < 64 << 20
    request = service_pb2.RepositoryModelLoadRequest(model_name="scaled")
    request.parameters["colour"].string_param = "red"
    with grpc.insecure_channel(running.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        service_pb2_grpc.GRPCInferenceServiceStub(channel).RepositoryModelLoad(request, timeout=20)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "unrecognized load parameter 'colour'" in caught.value.details()


def test_python_models_are_controlled_too(explicit, tmp_path):
    client, running = explicit(scaled(), flags=(pymodels.PYTHON,))
    config = 'max_batch_size: 8 input { name: "INPUT0" data_type: TYPE_FP32 dims: 4 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 4 }'
    triton = """
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                out = []
                for r in requests:
                    x = pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy()
                    out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x * FACTOR)]))
                return out
    """
    pymodels.write(tmp_path / "repository", "times", triton.replace("FACTOR", "2"), config)
    client.load_model("times")
    assert factor(client, "times") == 2
    folder = tmp_path / "repository" / "times"
    (folder / "config.pbtxt").write_text((folder / "config.pbtxt").read_text() + models.instances(3))
    client.load_model("times")
    assert factor(client, "times") == 2
    running.wait_for_log("instances changed.*instances=3 started=")
    (folder / "1" / "model.py").write_text(textwrap.dedent(triton.replace("FACTOR", "3")))
    client.load_model("times")
    assert factor(client, "times") == 3
    client.unload_model("times")
    wait_until(lambda: {"name": "times", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"} in index(client), 10, "the unload")


def test_versions_are_added_and_removed(explicit, tmp_path):
    client, running = explicit(models.two_versions("scaled", "all { }"), load=("*",))
    folder = tmp_path / "repository" / "scaled"
    assert factor(client) == 3 and factor(client, version="1") == 2
    (folder / "4").mkdir()
    (folder / "4" / "model.onnx").write_bytes(graphs.scale(4.0))
    client.load_model("scaled")
    assert factor(client) == 4 and factor(client, version="1") == 2
    shutil.rmtree(folder / "4")
    client.load_model("scaled")
    assert factor(client) == 3
    wait_until(lambda: {"name": "scaled", "version": "4", "state": "UNAVAILABLE", "reason": "unloaded"} in index(client), 10, "version 4 to go")
    code, text = refused(factor, client, version="4")
    assert code in ("503", "StatusCode.UNAVAILABLE") and text.endswith("Request for unknown model: 'scaled' version 4 is not at ready state")
    (folder / "config.pbtxt").write_text(models.two_versions("scaled", "specific { versions: [ 1 ] }").config_text())
    client.load_model("scaled")
    assert factor(client) == 2


def test_models_are_warm_before_they_are_ready(serve, tmp_path):
    """An ONNX and a Python model, which writes down what it runs."""
    sample = 'inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: 4 %s } }'
    warmup = f'model_warmup [ {{ name: "zeros" batch_size: 2 {sample % "zero_data: true"} }}, {{ name: "chance" batch_size: 1 count: 3 {sample % "random_data: true"} }} ]\n'
    repository = models.write(tmp_path / "models", scaled(extra=warmup + models.instances(2)))
    ran = tmp_path / "ran"
    code = f"""
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                with open({str(ran)!r}, "a") as f:
                    print(len(requests), file=f)
                out = []
                for r in requests:
                    x = pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy()
                    if x.sum() < 0:
                        raise ValueError("below zero")
                    out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x)]))
                return out
    """
    tensors = 'input { name: "INPUT0" data_type: TYPE_FP32 dims: 4 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 4 }'
    config = f"max_batch_size: 8 {tensors} {models.instances(2)}"
    pymodels.write(repository, "notes", code, config + warmup)
    running = serve("--model-repository", repository, pymodels.PYTHON).wait_ready()
    assert ran.read_text().split() == ["2", "1", "1", "1"] * 2
    stats = json.loads(server.get(running.http, "/v2/models/notes/stats").body)["model_stats"][0]
    assert stats["execution_count"] == 0 and stats["inference_stats"]["success"]["count"] == 0
    client, _ = connect(running, "http")
    assert factor(client) == 2

    bad = tmp_path / "bad"
    minus = 'model_warmup { name: "minus" batch_size: 1 inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: 4 input_data_file: "minus" } } }'
    pymodels.write(bad, "notes", code, config + minus)
    (bad / "notes" / "warmup").mkdir()
    (bad / "notes" / "warmup" / "minus").write_bytes(np.full(4, -1, np.float32).tobytes())
    failing = serve("--model-repository", bad, pymodels.PYTHON, "--exit-on-error=false")
    failing.wait_for_log("ready")
    (line,) = index(connect(failing, "http")[0])
    assert line["state"] == "UNAVAILABLE" and "failed to run warmup sample 'minus': " in line["reason"] and "below zero" in line["reason"]


def test_files_of_load_requests_over_http(serve):
    running = serve("--model-control-mode=explicit", wanted=(scaled(),)).wait_ready()
    answer = server.post(running.http, "/v2/repository/models/scaled/load", '{"parameters": {"config": "{}", "file:1/model.onnx": "no base64!"}}')
    assert answer.status == 400 and clients.error_of(answer).startswith("load parameter 'file:1/model.onnx' is not base64")
    answer = server.post(running.http, "/v2/repository/other/models/scaled/load")
    assert (answer.status, clients.error_of(answer)) == (501, "'repository_name' specification is not supported")
    request = {"parameters": {"config": json.dumps(SCALED), "file:1/model.onnx": base64.b64encode(graphs.scale(6.0)).decode()}}
    answer = server.post(running.http, "/v2/repository/models/scaled/load", json.dumps(request))
    assert (answer.status, answer.body) == (200, b""), answer.text


def test_poll_follows_the_repository(serve, protocol, tmp_path):
    running = serve("--model-control-mode=poll", "--repository-poll-secs=1", wanted=(scaled(),)).wait_ready()
    client, _ = connect(running, protocol)
    code, text = refused(client.load_model, "scaled")
    assert text == "explicit model load / unload is not allowed if polling is enabled"
    repository = tmp_path / "repository"
    folder = repository / "scaled"
    models.write(repository, scaled("added", 5.0))
    wait_until(lambda: client.is_model_ready("added"), 20, "the added model")
    assert factor(client, "added") == 5
    (folder / "2").mkdir()
    (folder / "2" / "model.onnx").write_bytes(graphs.scale(9.0))
    wait_until(lambda: factor(client) == 9, 20, "version 2")
    (folder / "config.pbtxt").write_text("max_batch_size: many")
    wait_until(lambda: any(m.get("reason") and m["state"] == "READY" for m in index(client)), 20, "the fault")
    assert factor(client) == 9 and client.is_server_ready()
    (folder / "config.pbtxt").write_text(scaled().config_text() + models.instances(3))
    wait_until(lambda: [m["name"] for m in index(client) if m["state"] == "READY" and not m.get("reason")] == ["added", "scaled"], 20, "the mended one")
    running.wait_for_log("instances changed.*instances=3")
    shutil.rmtree(repository / "added")
    wait_until(lambda: all(m["name"] != "added" for m in index(client)), 20, "the removed model to go")
    assert client.is_server_ready() and factor(client) == 9


# Waits in initialize or in execute while the file of that name is there, and says so in another.
HOLDING = """
    import pathlib
    import time
    import triton_python_backend_utils as pb_utils

    def hold(file):
        if file.exists():
            (FOLDER / "held").touch()
        while file.exists():
            time.sleep(0.01)

    class TritonPythonModel:
        def initialize(self, args):
            hold(FOLDER / "initialize")

        def execute(self, requests):
            hold(FOLDER / "executeFACTOR")
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", r.inputs()[0].as_numpy() * FACTOR)]) for r in requests]
"""
TENSORS = 'input { name: "INPUT0" data_type: TYPE_FP32 dims: 4 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 4 }'


def holding(repository, *versions: str):
    for version in versions:
        code = HOLDING.replace("FACTOR", version).replace("FOLDER", f"pathlib.Path({str(repository.parent)!r})")
        pymodels.write(repository, "holding", code, f"max_batch_size: 8 version_policy {{ all {{ }} }} {TENSORS}", version)
    return repository



def test_a_version_is_removed_while_it_is_busy(serve, protocol, tmp_path):
    repository = holding(tmp_path / "models", "1", "2")
    running = serve("--model-control-mode=explicit", "--load-model=*", "--model-repository", repository, pymodels.PYTHON).wait_ready()
    client, _ = connect(running, protocol)
    (tmp_path / "execute2").touch()
    with futures.ThreadPoolExecutor() as pool:
        busy = pool.submit(lambda: factor(connect(running, protocol)[0], "holding", "2"))
        wait_until((tmp_path / "held").exists, 20, "the request to run")
        try:
            shutil.rmtree(repository / "holding" / "2")
            client.load_model("holding")  # does not wait for the request
            assert {"name": "holding", "version": "2", "state": "UNLOADING"} in index(client)
            assert factor(client, "holding") == 1 and not busy.done()
            assert refused(factor, client, "holding", version="2")[0] in ("503", "StatusCode.UNAVAILABLE")
        finally:
            (tmp_path / "execute2").unlink()
        assert busy.result(20) == 2
    wait_until(lambda: {"name": "holding", "version": "2", "state": "UNAVAILABLE", "reason": "unloaded"} in index(client), 20, "version 2 to go")
    assert factor(client, "holding") == 1


def test_a_load_is_waited_for_and_cancelled(serve, tmp_path):
    repository = holding(tmp_path / "models", "2")
    running = serve("--model-control-mode=explicit", "--model-repository", repository, pymodels.PYTHON).wait_ready()
    client, _ = connect(running, "grpc")
    other, _ = connect(running, "http")
    (tmp_path / "initialize").touch()
    with futures.ThreadPoolExecutor() as pool:
        code, _ = refused(client.load_model, "holding", client_timeout=1)
        assert code == "StatusCode.DEADLINE_EXCEEDED"
        wait_until(lambda: index(other)[0].get("state") != "LOADING" and not faults.children(running.process.pid), 20, "the load to be called off")
        assert other.is_server_live() and not other.is_model_ready("holding")
        (tmp_path / "held").unlink(missing_ok=True)
        loads = [pool.submit(connect(running, protocol)[0].load_model, "holding") for protocol in ("http", "grpc")]
        try:
            wait_until((tmp_path / "held").exists, 20, "a load")
            assert index(client) == [{"name": "holding", "version": "2", "state": "LOADING"}] and not any(load.done() for load in loads)
        finally:
            (tmp_path / "initialize").unlink()
        for load in loads:
            load.result(20)
    running.wait_for_log("model ready")
    assert factor(client, "holding") == 2 and running.log.count("model ready") == 1


def test_each_repository_can_be_a_namespace(serve, protocol, tmp_path):
    """As tritonserver 2.51 answers, but for the names REPOSITORY::MODEL, which it has only in its log."""
    step = 'step { model_name: "scaled" model_version: -1 input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "OUTPUT0" } }'
    for name, multiplier in (("a", 2.0), ("b", 3.0)):
        models.write(tmp_path / name, scaled(factor=multiplier))
        (tmp_path / name / f"whole_{name}" / "1").mkdir(parents=True)
        (tmp_path / name / f"whole_{name}" / "config.pbtxt").write_text(f'platform: "ensemble" max_batch_size: 8 {TENSORS} ensemble_scheduling {{ {step} }}')
    repositories = [f"--model-repository={tmp_path / name}" for name in ("a", "b")]
    running = serve(*repositories, "--model-namespacing=true").wait_ready()
    client, _ = connect(running, protocol)
    assert [m["name"] for m in index(client)] == ["scaled", "whole_a", "scaled", "whole_b"]
    assert factor(client, "whole_a") == 2 and factor(client, "whole_b") == 3
    code, text = refused(factor, client, "scaled")
    assert code in BAD and text.endswith("There are 2 identifiers of model 'scaled' in global map, model namespace must be provided to resolve ambiguity.")
    assert not client.is_model_ready("scaled") and client.is_server_ready()
    assert factor(connect(running, "grpc")[0], f"{tmp_path / 'b'}::scaled") == 3
    assert f'nv_inference_request_success{{model="scaled",namespace="{tmp_path / "a"}",version="1"}} 1' in server.get(running.metrics, "/metrics").text
