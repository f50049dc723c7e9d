"""Repositories of Python models for the tests: files from testdata/python, or text in the test itself."""

from __future__ import annotations

import pathlib
import shutil
import sys
import textwrap

from server import LOOPBACK, PORTS, Server

HERE = pathlib.Path(__file__).parent
DATA = HERE / "testdata" / "python"
PACKAGE = HERE.parents[1] / "python"
# The workers run in this Python, which has numpy; PYTHONPATH goes on to them.
PYTHON = f"--python={sys.executable}"


def copy(repository: pathlib.Path, *names: str) -> pathlib.Path:
    """Copies models of testdata into a repository."""
    for name in names:
        shutil.copytree(DATA / name, repository / name)
    return repository


def write(repository: pathlib.Path, name: str, code: str, config: str | None = None, version: str = "1") -> pathlib.Path:
    """Writes a model.py; without a version it lies in the model's own folder. Without config there is no config.pbtxt."""
    folder = repository / name / version if version else repository / name
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(textwrap.dedent(code))
    if config is not None:
        (repository / name / "config.pbtxt").write_text(f'backend: "python"\n{config}\n')
    return repository


def serve(repository: pathlib.Path, *args: str) -> Server:
    """A server with the repository; use it in a with statement."""
    return Server("--model-repository", repository, PYTHON, *args, *PORTS, *LOOPBACK)
