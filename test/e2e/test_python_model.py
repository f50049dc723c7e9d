"""The ten-line model: --model, a folder with model.py alone, faults of predict."""

from __future__ import annotations

import json
import pathlib
import re
import textwrap

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

import clients
import pymodels
from server import LOOPBACK, PORTS, Server, get

TEN = """\
import shoal


class Mean(shoal.Model):
    x = shoal.Input("float32", [-1])
    mean = shoal.Output("float32")

    def predict(self, x):
        return x.mean(axis=1)
"""

FAULTY = '''\
import shoal
import numpy as np


class Faulty(shoal.Model):
    act = shoal.Input("str")
    y = shoal.Output("float32", [2])

    def predict(self, act):
        if act[0] == "raise":
            return self.deep()
        if act[0] == "refuse":
            raise shoal.Error("no such thing", "NOT_FOUND")
        if act[0] == "exit":
            raise SystemExit(3)
        return eval(act[0], {"np": np, "n": len(act)})

    def deep(self):
        raise ValueError("the wine is corked")
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    (folder / "mean.py").write_text("from beside import ONE\n" + TEN.replace("axis=1", "axis=ONE"))
    (folder / "beside.py").write_text("ONE = 1\n")
    (folder / "faulty.py").write_text(FAULTY)
    pymodels.write(folder, "alone", TEN, version="")
    args = ("--model", folder / "mean.py", "--model", f"renamed={folder / 'mean.py'}", "--model", folder / "faulty.py",
            "--model", folder / "alone")  # fmt: skip
    with Server(*args, pymodels.PYTHON, *PORTS, *LOOPBACK) as server:
        yield server.wait_ready()
        assert server.process.poll() is None


@pytest.fixture(scope="module")
def client(server):
    with tritonclient.http.InferenceServerClient(server.http) as client:
        yield client


@pytest.mark.parametrize("model", ["mean", "renamed", "alone"])
def test_ten_lines_are_a_served_model(client, model):
    x = np.array([[1, 2, 3], [4, 5, 9]], np.float32)
    got = client.infer(model, [clients.tensor(tritonclient.http, "x", "FP32", x)])
    assert got.as_numpy("mean").tolist() == [[2], [6]]


def test_its_configuration_is_read_from_the_class(server):
    config = json.loads(get(server.http, "/v2/models/alone/config").body)
    assert config["max_batch_size"] == 32 and "dynamic_batching" in config
    assert config["input"][0]["name"] == "x" and config["output"][0]["dims"] == [1]


LINE = 1 + FAULTY.splitlines().index('        return eval(act[0], {"np": np, "n": len(act)})')
RETURNS = f"one of the returns in lines 11, {LINE} of faulty.py"


@pytest.mark.parametrize("act, status, want", [
    ("np.zeros((n, 3), 'f4')", "500", f"model 'faulty': predict returned y with shape (1, 3), want (1, 2): one row for each of the batch's 1, each of shape [2] ({RETURNS})"),
    ("np.zeros((n, 2), 'c8')", "500", f"model 'faulty': predict returned y with type complex64, want float32; convert it with .astype('float32') if that is meant ({RETURNS})"),
    ("None", "500", f"model 'faulty': predict returned None, want y: is a return missing? ({RETURNS})"),
    ("raise", "500", f"model 'faulty': ValueError: the wine is corked (line {len(FAULTY.splitlines())} of faulty.py, in deep)"),
    ("refuse", "404", "no such thing"),
    ("exit", "500", "model 'faulty': SystemExit: 3 (line 15 of faulty.py, in predict)"),
])  # fmt: skip
def test_faults_are_told_with_shapes_and_lines(client, act, status, want):
    text = clients.tensor(tritonclient.http, "act", "BYTES", np.array([[act.encode()]], np.object_))
    with pytest.raises(InferenceServerException) as error:
        client.infer("faulty", [text])
    assert (error.value.message(), error.value.status()) == (want, status)
    good = clients.tensor(tritonclient.http, "act", "BYTES", np.array([[b"np.ones((n, 2))"]], np.object_))
    assert client.infer("faulty", [good]).as_numpy("y").tolist() == [[1, 1]], "the worker must go on"


def test_a_traceback_is_in_the_log(server, client):
    text = clients.tensor(tritonclient.http, "act", "BYTES", np.array([[b"raise"]], np.object_))
    with pytest.raises(InferenceServerException):
        client.infer("faulty", [text])
    server.wait_for_log(r"Traceback.*faulty\.py.*in predict.*ValueError: the wine is corked")


def test_config_pbtxt_goes_before_the_class(tmp_path):
    pymodels.write(tmp_path, "small", TEN, "max_batch_size: 2 instance_group [ { count: 1 kind: KIND_CPU } ]")
    with pymodels.serve(tmp_path) as server:
        server.wait_ready()
        assert json.loads(get(server.http, "/v2/models/small/config").body)["max_batch_size"] == 2


def test_a_wrong_declaration_does_not_load(tmp_path):
    pymodels.write(tmp_path, "wrong", textwrap.dedent(TEN).replace("predict(self, x)", "predict(self, a, b)"), version="")
    with pymodels.serve(tmp_path, "--exit-on-error=false", "--strict-readiness=false") as server:
        server.wait_for_log("msg=ready after", timeout=60)
        with tritonclient.http.InferenceServerClient(server.http) as client:
            (entry,) = client.get_model_repository_index()
    assert "predict(a, b) asks for a, b, but the inputs are x" in entry["reason"]


@pytest.mark.parametrize("users", ["", "glibc.malloc.check=0"])
def test_the_allocator_is_tuned_for_the_server_and_not_for_workers(tmp_path, users):
    def tunables(pid: int) -> set[str]:
        """What the process was started with; the C library may put other characters in place of the colons."""
        return set(re.findall(r"glibc\.malloc\.\w+=\w+", pathlib.Path(f"/proc/{pid}/environ").read_text()))

    (tmp_path / "mean.py").write_text(TEN)
    env, wanted = ({"GLIBC_TUNABLES": users}, {users}) if users else (None, set())
    with Server("--model", tmp_path / "mean.py", pymodels.PYTHON, *PORTS, *LOOPBACK, env=env) as running:
        running.wait_ready()
        pid = running.process.pid
        assert tunables(pid) == wanted | {"glibc.malloc.tcache_count=200"}
        workers = [int(n) for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children") for n in task.read_text().split()]
        assert workers and [tunables(w) for w in workers] == [wanted] * len(workers)
