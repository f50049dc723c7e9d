"""Model control with Python models only, so that a real tritonserver can be asked the same:

    tritonserver --model-control-mode=explicit --model-repository=DIR ...
    pytest test/e2e/test_control_peer.py --target-http=... --target-grpc=... --target-metrics=... --target-repository=DIR
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import textwrap

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

import pymodels
import server
from server import LOOPBACK, PORTS, Server, wait_until
from test_control import BAD, INTERNAL, UNKNOWN, connect, factor, index, refused

pytestmark = pytest.mark.peer

TENSORS = 'input { name: "INPUT0" data_type: TYPE_FP32 dims: 4 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 4 }'
CPU = "instance_group { count: 1 kind: KIND_CPU }"
CODE = """
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            out = []
            for r in requests:
                x = pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy()
                out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x * np.float32(FACTOR))]))
            return out
"""
JSON = {
    "backend": "python",
    "max_batch_size": 8,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
    "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
}


def code(multiplier: float) -> str:
    return textwrap.dedent(CODE.replace("FACTOR", str(multiplier)))


@dataclasses.dataclass
class Folder:
    """A model's folder in the server's repository."""

    path: pathlib.Path

    def config(self, more: str = "") -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "config.pbtxt").write_text(f'backend: "python" max_batch_size: 8 {TENSORS} {CPU} {more}\n')

    def version(self, number: int, multiplier: float | None) -> None:
        """Writes a version; None for one that cannot be loaded."""
        folder = self.path / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.py").write_text("def (" if multiplier is None else code(multiplier))

    def remove(self, number: int) -> None:
        shutil.rmtree(self.path / str(number))

    def ensemble(self, *steps: str) -> None:
        """Makes it an ensemble of models that follow each other."""
        names = ["INPUT0", *(f"between{i}" for i in range(1, len(steps))), "OUTPUT0"]
        text = "".join(
            f'step {{ model_name: "{step}" model_version: -1 input_map {{ key: "INPUT0" value: "{names[i]}" }} '
            f'output_map {{ key: "OUTPUT0" value: "{names[i + 1]}" }} }} '
            for i, step in enumerate(steps)
        )
        (self.path / "1").mkdir(parents=True)
        (self.path / "config.pbtxt").write_text(f'platform: "ensemble" max_batch_size: 8 {TENSORS} ensemble_scheduling {{ {text} }}')


@pytest.fixture(scope="module")
def controlled(request, tmp_path_factory):
    """A server under explicit control with an empty repository: its addresses and the folder."""
    given = {p: request.config.getoption(f"--target-{p}") for p in ("http", "grpc", "metrics", "repository")}
    if given["http"]:
        if not given["repository"]:
            pytest.skip("needs --target-repository")
        yield type("Target", (), given), pathlib.Path(given["repository"])
        return
    repository = tmp_path_factory.mktemp("repository")
    with Server("--model-control-mode=explicit", "--model-repository", repository, pymodels.PYTHON, *PORTS, *LOOPBACK) as running:
        yield running.wait_ready(), repository


@pytest.fixture(params=["http", "grpc"])
def control(request, controlled):
    """A client, a function that gives a folder of the repository and one that reads the index's lines of a model."""
    running, repository = controlled
    client, _ = connect(running, request.param)
    made = []

    def folder(name: str) -> Folder:
        found = Folder(repository / f"{name}_{request.param}")
        made.append(found)
        return found

    def lines(name: str) -> list[dict]:
        return [{k: v for k, v in m.items() if k != "name"} for m in index(client) if m["name"] == name]

    yield client, folder, lines
    for one in made:
        client.unload_model(one.path.name, unload_dependents=True)
        wait_until(lambda: all(m.get("state") != "UNLOADING" for m in lines(one.path.name)), 60, "the unload")
        shutil.rmtree(one.path, ignore_errors=True)


UNLOADED = {"state": "UNAVAILABLE", "reason": "unloaded"}


def test_a_model_comes_and_goes(control):
    client, folder, lines = control
    model = folder("plain")
    name = model.path.name
    model.config()
    model.version(1, 2)
    assert lines(name) == [{}] and not client.is_model_ready(name)
    code, text = refused(factor, client, name)
    assert code in UNKNOWN and text.endswith(f"Request for unknown model: '{name}' is not found")
    client.load_model(name)
    assert lines(name) == [{"version": "1", "state": "READY"}] and client.is_model_ready(name) and factor(client, name) == 2
    client.load_model(name)  # nothing has changed
    assert factor(client, name) == 2
    client.unload_model(name)
    wait_until(lambda: lines(name) == [{"version": "1", **UNLOADED}], 30, "the unload")
    code, text = refused(factor, client, name)
    assert code in UNKNOWN and text.endswith(f"Request for unknown model: '{name}' has no available versions")
    code, text = refused(factor, client, name, version="1")
    assert text.endswith(f"Request for unknown model: '{name}' version 1 is not at ready state")
    code, text = refused(factor, client, name, version="7")
    assert code in UNKNOWN and text.endswith(f"Request for unknown model: '{name}' version 7 is not found")
    assert client.is_server_ready() and not client.is_model_ready(name)
    client.unload_model(name)
    client.unload_model("nosuch")
    code, text = refused(client.load_model, "nosuch")
    assert code in INTERNAL and text == "failed to load 'nosuch', failed to poll from model repository"
    client.load_model(name)
    assert factor(client, name) == 2
    shutil.rmtree(model.path)
    code, text = refused(client.load_model, name)
    assert code in INTERNAL and text == f"failed to load '{name}', failed to poll from model repository"
    assert factor(client, name) == 2  # what is loaded stays


def test_loads_that_fail(control):
    client, folder, lines = control
    model = folder("faulty")
    name = model.path.name
    model.config()
    model.version(1, None)
    code, text = refused(client.load_model, name)
    assert code in BAD and text.startswith(f"load failed for model '{name}': version 1 is at UNAVAILABLE state: Internal: ")
    assert "SyntaxError" in text and text.endswith(";\n")
    (line,) = lines(name)
    assert line["state"] == "UNAVAILABLE" and line["reason"].startswith("Internal: ") and "SyntaxError" in line["reason"]
    assert not client.is_server_ready() and client.is_server_live()
    code, text = refused(factor, client, name)
    assert code in UNKNOWN and text.endswith("has no available versions")
    model.version(1, 3)
    client.load_model(name)
    assert client.is_server_ready() and factor(client, name) == 3
    model.version(1, None)
    assert refused(client.load_model, name)[0] in BAD
    assert factor(client, name) == 3 and client.is_server_ready() and lines(name)[0]["state"] == "READY"
    (model.path / "config.pbtxt").write_text("max_batch_size: many")
    code, text = refused(client.load_model, name)
    assert code in INTERNAL and text.startswith(f"failed to load '{name}', failed to poll from model repository")
    assert factor(client, name) == 3
    model.config()
    model.version(1, 5)
    client.load_model(name)
    assert factor(client, name) == 5 and lines(name) == [{"version": "1", "state": "READY"}]


def test_versions(control):
    client, folder, lines = control
    model = folder("versions")
    name = model.path.name
    model.config("version_policy { all { } }")
    for number in (1, 3):
        model.version(number, number)
    client.load_model(name)
    assert factor(client, name) == 3 and factor(client, name, version="1") == 1
    model.version(4, 4)
    client.load_model(name)
    assert factor(client, name) == 4 and factor(client, name, version="1") == 1
    model.remove(4)
    client.load_model(name)
    wait_until(lambda: {"version": "4", **UNLOADED} in lines(name), 30, "version 4 to go")
    assert factor(client, name) == 3
    code, text = refused(factor, client, name, version="4")
    assert code in ("503", "StatusCode.UNAVAILABLE") and text.endswith(f"Request for unknown model: '{name}' version 4 is not at ready state")
    model.config("version_policy { specific { versions: [ 1 ] } }")
    client.load_model(name)
    assert factor(client, name) == 1
    wait_until(lambda: {"version": "3", **UNLOADED} in lines(name), 30, "version 3 to go")
    model.config()  # the latest one
    client.load_model(name)
    assert factor(client, name) == 3
    wait_until(lambda: {"version": "1", **UNLOADED} in lines(name), 30, "version 1 to go")
    model.version(5, None)
    model.config("version_policy { all { } }")
    code, text = refused(client.load_model, name)  # one of three is broken
    assert code in BAD and text.startswith(f"load failed for model '{name}': version 5 is at UNAVAILABLE state: Internal: ")
    assert factor(client, name) == 3


def test_configurations_of_clients(control, controlled):
    client, folder, lines = control
    running, _ = controlled
    model = folder("given")
    name = model.path.name
    model.config()
    model.version(1, 2)

    def batch() -> int:
        return json.loads(server.get(running.http, f"/v2/models/{name}/config").body)["max_batch_size"]

    client.load_model(name, config=json.dumps({**JSON, "max_batch_size": 4}))
    assert batch() == 4 and factor(client, name) == 2
    for config in ('{"max_batch_size": 4', '{"colour": "red"}', json.dumps({**JSON, "name": "other"})):
        code, text = refused(client.load_model, name, config=config)
        assert code in INTERNAL and text.startswith(f"failed to load '{name}', failed to poll from model repository"), text
    assert batch() == 4 and factor(client, name) == 2
    model.config("parameters { key: \"a\" value { string_value: \"b\" } }")
    client.load_model(name)
    assert batch() == 8


def test_files_of_clients(control):
    client, folder, lines = control
    model, sent = folder("files"), folder("sent")
    name, other = model.path.name, sent.path.name
    model.config()
    model.version(1, 2)
    config = json.dumps(JSON)
    client.load_model(name, config=config, files={"file:1/model.py": code(7).encode()})
    assert factor(client, name) == 7
    client.load_model(other, config=config, files={"file:5/model.py": code(5).encode()})
    assert factor(client, other) == 5 and factor(client, other, version="5") == 5
    client.load_model(name)
    assert factor(client, name) == 2
    code_, text = refused(client.load_model, name, files={"file:1/model.py": code(9).encode()})
    assert code_ in INTERNAL and text.startswith(f"failed to load '{name}', failed to poll from model repository")
    code_, text = refused(client.load_model, name, config=config, files={"file:../../1/model.py": code(9).encode()})
    assert code_ in (*INTERNAL, *BAD) and factor(client, name) == 2
    client.unload_model(other)
    assert refused(client.load_model, other)[0] in INTERNAL


def test_an_ensemble_and_its_models(control):
    client, folder, lines = control
    first, second, whole = folder("first"), folder("second"), folder("whole")
    for part, multiplier in ((first, 2), (second, 5)):
        part.config()
        part.version(1, multiplier)
    whole.ensemble(first.path.name, second.path.name)
    name = whole.path.name
    client.load_model(name)
    assert factor(client, name) == 10 and factor(client, first.path.name) == 2
    first.version(1, 3)
    client.load_model(first.path.name)
    assert factor(client, name) == 15
    client.unload_model(first.path.name)  # the ensemble cannot go on without it
    wait_until(lambda: lines(name) == [{"version": "1", **UNLOADED}], 30, "the ensemble to go")
    assert refused(factor, client, name)[0] in UNKNOWN and factor(client, second.path.name) == 5
    client.load_model(name)
    assert factor(client, name) == 15
    client.unload_model(name)  # alone
    wait_until(lambda: lines(name) == [{"version": "1", **UNLOADED}], 30, "the ensemble to go")
    assert factor(client, first.path.name) == 3
    client.load_model(name)
    client.unload_model(name, unload_dependents=True)
    for part in (whole, second):
        wait_until(lambda: lines(part.path.name) == [{"version": "1", **UNLOADED}], 30, f"{part.path.name} to go")


def test_instances_change(control, controlled):
    client, folder, lines = control
    running, _ = controlled
    model = folder("instances")
    name = model.path.name
    model.version(1, 2)
    for count in (1, 3, 2):
        model.config()
        text = (model.path / "config.pbtxt").read_text().replace("count: 1", f"count: {count}")
        (model.path / "config.pbtxt").write_text(text)
        client.load_model(name)
        assert factor(client, name) == 2
        config = json.loads(server.get(running.http, f"/v2/models/{name}/config").body)
        assert config["instance_group"][0]["count"] == count
    assert lines(name) == [{"version": "1", "state": "READY"}]


@pytest.mark.parametrize(
    "body, status, text",
    [
        ('{"parameters": {"foo": "bar"}}', 500, "unexpected error on creating Triton parameter"),
        ("{x", 500, "failed to parse the request JSON buffer: Missing a name for object member. at 1"),
        ('{"parameters": {"config": 1}}', 500, "attempt to access JSON non-string as string"),
        ('{"parameters": ["config"]}', 500, "attempt to get members for non-object"),
        ('{"parameters": null}', 500, "attempt to get members for non-object"),
        ('{"parameters": {"config": "{}", "unload_dependents": true}}', 500, "attempt to access JSON non-string as string"),
    ],
)
def test_bad_load_requests(controlled, body, status, text):
    running, repository = controlled
    answer = server.post(running.http, "/v2/repository/models/nosuch/load", body)
    assert (answer.status, json.loads(answer.body)["error"][: len(text)]) == (status, text)


def test_named_repositories_and_what_is_ready(controlled):
    running, _ = controlled
    for act in ("load", "unload"):
        answer = server.post(running.http, f"/v2/repository/other/models/nosuch/{act}")
        assert (answer.status, json.loads(answer.body)["error"]) == (501, "'repository_name' specification is not supported")
    answer = server.post(running.http, "/v2/repository/index", '{"ready": true}')
    assert answer.status == 200 and json.loads(answer.body) == []


@pytest.mark.parametrize(
    "act, name, value, text",
    [
        ("Load", "colour", {"string_param": "red"}, "unrecognized load parameter 'colour'."),
        ("Load", "config", {"int64_param": 1}, "invalid value type for load parameter 'config', expected string_param."),
        ("Load", "file:1/model.py", {"string_param": "x"}, "invalid value type for load parameter 'file:1/model.py', expected bytes_param."),
        ("Unload", "unload_dependents", {"string_param": "yes"}, "invalid value type for 'unload_dependents' parameter, expected bool_param."),
        ("Unload", "colour", {"string_param": "red"}, ""),
    ],
)
def test_parameters_over_grpc(controlled, act, name, value, text):
    running, _ = controlled
    request = getattr(service_pb2, f"RepositoryModel{act}Request")(model_name="nosuch")
    request.parameters[name].CopyFrom(service_pb2.ModelRepositoryParameter(**value))
    with grpc.insecure_channel(running.grpc) as channel:
        call = getattr(service_pb2_grpc.GRPCInferenceServiceStub(channel), f"RepositoryModel{act}")
        if not text:
            call(request, timeout=20)
            return
        with pytest.raises(grpc.RpcError) as caught:
            call(request, timeout=20)
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, text)
