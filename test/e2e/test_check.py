"""`shoal check`: every fault of a repository by file and line, without serving it."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest

import graphs
import models
import pymodels
import server

ROW = (models.Tensor("INPUT0", "FP32", (4,)),), (models.Tensor("OUTPUT0", "FP32", (4,)),)
TENSORS = """
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] }
"""
CODE = """
class TritonPythonModel:
    def execute(self, requests):
        raise RuntimeError("it cannot work")
"""


def check(repository: pathlib.Path, *flags: str) -> subprocess.CompletedProcess:
    command = [str(server.BINARY), "check", str(repository), pymodels.PYTHON, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=server.environment())


def scaled(name: str, config: str | None = "", **more) -> models.Model:
    return models.Model(name=name, inputs=ROW[0], outputs=ROW[1], max_batch_size=8, versions={1: graphs.scale(2.0)}, config=config, **more)


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A repository with a fault of each kind, and a good model."""
    path = tmp_path_factory.mktemp("broken")
    warmup = 'model_warmup {\n  name: "first"\n  batch_size: 1\n  inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: 4 input_data_file: "nosuch" } }\n}\n'
    models.write(
        path,
        scaled("good"),
        scaled("misspelt", "backend: \"onnxruntime\"\nmax_batch_sise: 8\ninput { nam: \"x\" }\n"),
        scaled("types", 'backend: "onnxruntime"\nmax_batch_size: 8\ninput {\n  name: "INPUT0"\n  data_type: TYPE_INT32\n  dims: 4\n}\noutput { name: "OUTPUT0" data_type: TYPE_FP32 dims: 4 }\n'),
        scaled("labels", 'backend: "onnxruntime"\nmax_batch_size: 8\n' + TENSORS.replace("dims: [ 4 ] }\n", 'dims: [ 4 ]\n  label_filename: "labels.txt" }\n', 2).replace('\n  label_filename: "labels.txt"', "", 1)),
        scaled("warmup", extra=warmup),
        models.Model(name="steps", config='platform: "ensemble"\nmax_batch_size: 8\n' + TENSORS + 'ensemble_scheduling {\n  step {\n    model_name: "nosuch"\n    model_version: -1\n    input_map { key: "INPUT0" value: "INPUT0" }\n    output_map { key: "OUTPUT0" value: "OUTPUT0" }\n  }\n}\n'),
    )  # fmt: skip
    (path / "empty").mkdir()
    pymodels.write(path, "syntax", "def (:\n", TENSORS)
    pymodels.write(path, "fails", CODE, TENSORS)
    return path


def test_every_fault_is_listed_by_file_and_line(broken):
    done = check(broken)
    assert (done.returncode, done.stderr) == (1, ""), done
    lines = done.stdout.splitlines()
    assert lines[-1] == "2 of 9 models load", done.stdout
    wanted = {
        "misspelt/config.pbtxt:2:1": "did you mean max_batch_size?",
        "misspelt/config.pbtxt:3:9": "did you mean name?",
        "types/config.pbtxt:": "INPUT0",
        "labels": "labels.txt",
        "warmup": "warmup sample 'first'",
        "steps": "nosuch",
        "empty": "at least one version",
        "syntax/1": "invalid syntax",
    }
    for place, words in wanted.items():
        assert any(line.startswith(f"{broken}/{place}") and words in line for line in lines), f"{place}: {words}\n{done.stdout}"
    assert not any("good" in line or "fails" in line for line in lines), done.stdout


def test_run_sends_zeros_and_json_has_it_all(broken):
    done = check(broken, "--run", "--json")
    assert (done.returncode, done.stderr) == (1, ""), done
    got = json.loads(done.stdout)
    found = {m["name"]: m for m in got["models"]}
    assert not got["ok"] and list(found) == sorted(found) and len(found) == 9
    assert found["good"] == {"name": "good", "folder": f"{broken}/good", "faults": [], "warnings": []}
    (fault,) = found["fails"]["faults"]
    assert fault["version"] == "1" and "a request of zeros: " in fault["text"] and "it cannot work" in fault["text"]
    assert [(f["line"], f["column"]) for f in found["misspelt"]["faults"]] == [(2, 1), (3, 9)]


def test_a_good_repository_exits_0(tmp_path):
    repository = models.write(tmp_path / "repository", *models.good())
    done = check(repository, "--run")
    assert done.returncode == 0, done
    assert done.stdout.endswith(f"{len(models.good())} of {len(models.good())} models load\n")


def test_what_cannot_be_checked_is_said(tmp_path):
    missing = check(tmp_path / "nosuch")
    assert missing.returncode == 1 and "nosuch" in missing.stderr
    unnamed = subprocess.run([str(server.BINARY), "check"], capture_output=True, text=True, timeout=20)
    assert unnamed.returncode == 2 and "name the repository to check" in unnamed.stderr
