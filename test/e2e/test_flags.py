"""Flags and settings that change what is served, and what a server without ONNX Runtime does."""

from __future__ import annotations

import json
import os
import subprocess

import grpc
import numpy as np
import pytest
import tritonclient.grpc as library
from onnx import TensorProto
from tritonclient.utils import InferenceServerException

import clients
import graphs
import models
import server
import tools

GRAPH = graphs.add_sub(TensorProto.FLOAT, TensorProto.FLOAT, ["batch", 16])
REQUEST = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]}


def config(running: server.Server, model: str) -> dict:
    return json.loads(server.get(running.http, f"/v2/models/{model}/config").body)


def test_without_onnx_runtime_only_onnx_models_are_lost(serve, tmp_path):
    """The sentence names the command that mends it."""
    env = {"SHOAL_ONNXRUNTIME_LIBRARY": str(tmp_path / "nowhere.so")}
    flags = ("--exit-on-error=false", "--strict-readiness=false")
    running = serve(*flags, wanted=(models.simple(), models.slow("plain", 0)), env=env).wait_ready()
    assert clients.infer_json(running.http, REQUEST, model="plain").status == 200
    assert clients.infer_json(running.http, clients.simple_json()).status == 404
    index = {m["name"]: m for m in json.loads(server.post(running.http, "/v2/repository/index").body)}
    assert index["plain"]["state"] == "READY"
    assert "nowhere.so" in index["simple"]["reason"], index


def test_a_missing_library_is_a_sentence_that_names_the_command(serve, tmp_path):
    nothing = {
        "SHOAL_ONNXRUNTIME_LIBRARY": "",
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path),
        "PATH": "/nowhere",
    }
    running = serve(wanted=(models.simple(),), env=nothing)
    assert running.wait() == 1
    assert "shoal runtime install" in running.log, running.log


def test_runtime_list_shows_the_library_and_its_providers():
    done = subprocess.run(
        [server.BINARY, "runtime", "list"], capture_output=True, text=True, env=server.environment(), timeout=20
    )
    assert done.returncode == 0, done.stderr
    named = server.environment().get("SHOAL_ONNXRUNTIME_LIBRARY")
    assert (os.path.realpath(named) if named else "libonnxruntime") in done.stdout
    assert "CPU" in done.stdout


def test_the_default_batch_size_is_a_backend_setting(serve):
    wanted = (models.Model("auto", versions={1: GRAPH}, config=None),)
    running = serve("--backend-config=onnxruntime,default-max-batch-size=32", wanted=wanted).wait_ready()
    got = config(running, "auto")
    assert got["max_batch_size"] == 32 and got["dynamic_batching"]["preferred_batch_size"] == [32]


def test_another_configuration_by_name(serve):
    other = models.add_sub("FP32", max_batch_size=2).config_text()
    named = models.Model(**{**models.add_sub("FP32").__dict__, "files": {"configs/small.pbtxt": other}})
    running = serve("--model-config-name=small", wanted=(named, models.simple())).wait_ready()
    assert config(running, "add_sub_fp32")["max_batch_size"] == 2
    assert config(running, "simple")["max_batch_size"] == 8


def test_without_auto_complete_a_bare_model_is_refused(serve):
    wanted = (models.Model("auto", versions={1: GRAPH}, config=None),)
    running = serve("--disable-auto-complete-config", wanted=wanted)
    assert running.wait() == 1
    assert "auto" in running.log


@pytest.mark.parametrize(
    "given, want", [("KIND_AUTO", "KIND_CPU"), ("KIND_CPU", "KIND_CPU"), ("KIND_MODEL", "KIND_MODEL")]
)
def test_instance_kinds(serve, given, want):
    wanted = (models.add_sub("INT32", name="simple", extra=f"instance_group [ {{ kind: {given} count: 2 }} ]\n"),)
    running = serve(wanted=wanted).wait_ready()
    group = config(running, "simple")["instance_group"][0]
    assert (group["kind"], group["count"]) == (want, 2)
    assert clients.infer_json(running.http, clients.simple_json()).status == 200


def test_a_field_without_effect_is_named_in_a_warning(serve):
    running = serve(
        wanted=(models.add_sub("INT32", name="simple", extra="response_cache { enable: true }\n"),)
    ).wait_ready()
    running.wait_for_log(r"level=WARN .*response_cache")


def test_restricted_http_apis_want_their_header(serve):
    running = serve(
        "--http-restricted-api=model-config,statistics:x-key=secret", wanted=(models.simple(),)
    ).wait_ready()
    for path in ("/v2/models/simple/config", "/v2/models/simple/stats"):
        answer = server.get(running.http, path)
        want = "This API is restricted, expecting header 'x-key'"
        assert (answer.status, clients.error_of(answer)) == (403, want)
        assert server.call(running.http, "GET", path, headers={"x-key": "secret"}).status == 200
    assert server.get(running.http, "/v2/models/simple").status == 200


def test_restricted_grpc_protocols_want_their_metadata(serve):
    running = serve("--grpc-restricted-protocol=inference:key=secret", wanted=(models.simple(),)).wait_ready()
    with library.InferenceServerClient(running.grpc) as client:
        with pytest.raises(InferenceServerException) as caught:
            client.infer("simple", clients.simple_inputs(library))
        want = "This protocol is restricted, expecting header 'triton-grpc-protocol-key'"
        assert (caught.value.status(), caught.value.message()) == ("StatusCode.UNAVAILABLE", want)
        headers = {"triton-grpc-protocol-key": "secret"}
        clients.assert_simple(client.infer("simple", clients.simple_inputs(library), headers=headers))


def test_compressed_grpc_answers(serve):
    flags = ("--grpc-infer-response-compression-level=high",)
    running = serve(*flags, wanted=(models.identity("FP32"),)).wait_ready()
    array = np.zeros((10, 1000), np.float32)
    with library.InferenceServerClient(running.grpc) as client:
        inputs = [clients.tensor(library, "INPUT0", "FP32", array)]
        np.testing.assert_array_equal(client.infer("identity_fp32", inputs).as_numpy("OUTPUT0"), array)


def test_grpc_over_tls(serve, tmp_path):
    key, cert = tools.certificate(tmp_path)
    flags = ("--grpc-use-ssl=true", f"--grpc-server-cert={cert}", f"--grpc-server-key={key}")
    running = serve(*flags, wanted=(models.simple(),)).wait_ready()
    address = running.grpc.replace("127.0.0.1", "localhost")
    with library.InferenceServerClient(address, ssl=True, root_certificates=str(cert)) as client:
        clients.assert_simple(client.infer("simple", clients.simple_inputs(library)))
    with grpc.insecure_channel(running.grpc) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"", timeout=2)


def test_a_log_of_json_lines_in_a_file(serve, tmp_path):
    file = tmp_path / "server.log"
    wanted = (models.simple(),)
    running = serve(f"--log-file={file}", "--log-json", wanted=wanted)
    server.wait_until(lambda: file.exists() and '"msg":"ready"' in file.read_text(), 20, "the log file")
    assert all(json.loads(line)["level"] for line in file.read_text().splitlines())
    assert "listening" not in running.log
