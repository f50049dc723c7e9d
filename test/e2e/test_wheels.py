"""The wheel: pip installs it into an empty environment, and its commands and its package find the binary inside."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

import pymodels
from server import BINARY, LOOPBACK, PORTS, ROOT, Server, post

pytest.importorskip("tomllib", reason="deploy/wheels.py needs Python 3.11")
sys.path.insert(0, str(ROOT / "deploy"))
import wheels  # noqa: E402

MEAN = """
import shoal


class Mean(shoal.Model):
    x = shoal.Input("float32", [-1])
    mean = shoal.Output("float32")

    def predict(self, x):
        return x.mean(axis=1)
"""


@pytest.fixture(scope="module")
def venv(tmp_path_factory) -> pathlib.Path:
    """A virtual environment with the wheel; numpy comes from the tests' own packages."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = wheels.write(folder, "linux_x86_64" if os.uname().machine == "x86_64" else "linux_aarch64", BINARY, level=1)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    subprocess.run([sys.executable, "-m", "pip", "--python", folder / "venv", "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
    return folder / "venv"


def clean() -> dict[str, str]:
    """The environment of a user who has set nothing."""
    return {k: v for k, v in os.environ.items() if not k.startswith("SHOAL")}


def test_every_command_is_the_binary_under_its_name(venv):
    for name in ("shoal", "tritonserver", "perf_analyzer", "multi-model-server", "mxnet-model-server", "model-archiver", "torchserve",
                 "torch-model-archiver"):  # fmt: skip
        got = subprocess.run([venv / "bin" / name, "--help"], env=clean(), capture_output=True, text=True)
        assert got.returncode == 0 and name in got.stdout, (name, got)
    got = subprocess.run([venv / "bin" / "python", "-m", "shoal", "--version"], env=clean(), capture_output=True, text=True)
    assert got.stdout == "shoal " + wheels.project()["version"] + "\n"


def test_the_command_runs_models_in_its_own_python(venv, tmp_path):
    (tmp_path / "mean.py").write_text(MEAN + "\nimport sys; print('prefix', sys.prefix)\n")
    with Server("--model", tmp_path / "mean.py", *PORTS, *LOOPBACK, binary=venv / "bin" / "shoal") as server:
        server.wait_ready()
        server.wait_for_log(f"prefix {venv}")
        answer = post(server.http, "/v2/models/mean/infer", '{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,6]}]}')
    assert answer.status == 200 and '"data":[3.0]' in answer.text


def test_the_package_serves_with_its_own_binary(venv, tmp_path):
    code = "import shoal\nfrom shoal._binary import find_binary\nprint(find_binary())\n" + MEAN + "\nwith shoal.serve(Mean) as s: print(s(x=[[1, 2, 6]]))"
    (tmp_path / "script.py").write_text(code)
    got = subprocess.run([venv / "bin" / "python", "script.py"], env=clean(), cwd=tmp_path, capture_output=True, text=True)
    assert got.returncode == 0, got
    (inside,) = venv.glob("lib/python3*/site-packages/shoal/bin/shoal")
    assert got.stdout.split("\n")[:2] == [str(inside), "[3.]"]


def test_without_a_binary_the_command_says_what_to_do(venv, tmp_path):
    env = {**clean(), "PYTHONPATH": str(pymodels.PACKAGE), "PATH": "/nonexistent"}
    got = subprocess.run([venv / "bin" / "shoal", "--version"], env=env, capture_output=True, text=True)
    assert got.returncode == 1 and got.stderr.startswith("shoal: the server's binary was not found: put `shoal` on the PATH"), got


def test_two_runs_write_the_same_wheel_and_versions_agree(tmp_path):
    (tmp_path / "program").write_bytes(b"\x7fELF")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    a, b = (wheels.write(tmp_path / n, "any", tmp_path / "program") for n in ("a", "b"))
    assert a.read_bytes() == b.read_bytes()
    package = (ROOT / "python" / "shoal" / "__init__.py").read_text()
    assert f'__version__ = "{wheels.project()["version"]}"' in package
