"""What docs/python.md shows works as it says."""

from __future__ import annotations

import os
import pathlib
import re
import sys

import numpy as np

import pymodels
from server import BINARY, LOOPBACK, PORTS, Server, post

sys.path.insert(0, str(pymodels.PACKAGE))
os.environ.setdefault("SHOAL", str(BINARY))

TEXT = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)


def block(part: str) -> str:
    (found,) = [b for b in BLOCKS if part in b]
    return found


def test_the_ten_lines_and_their_curl(tmp_path):
    (tmp_path / "mean.py").write_text(block("class Mean(shoal.Model):"))
    (body,) = re.findall(r"/v2/models/mean/infer -d '(.*)'", TEXT)
    with Server("--model", tmp_path / "mean.py", pymodels.PYTHON, *PORTS, *LOOPBACK) as server:
        server.wait_ready()
        answer = post(server.http, "/v2/models/mean/infer", body)
        ((plain, shown),) = re.findall(r"/v2/models/mean/generate -d '(.*)'\n(.*)\n", TEXT)
        generated = post(server.http, "/v2/models/mean/generate", plain)
    assert answer.status == 200 and '"data":[3.0]' in answer.text
    assert generated.status == 200 and generated.text.strip() == shown


def test_the_decorated_function(tmp_path):
    import shoal

    (tmp_path / "mean.py").write_text("import shoal\n\n" + block("@shoal.model("))
    with shoal.serve(tmp_path / "mean.py") as server:
        assert server(x=np.ones((2, 3), np.float32)).tolist() == [[1], [1]]


def test_the_script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("weights.npy", np.arange(6, dtype=np.float32).reshape(3, 2))
    code = block("shoal.serve(score")
    before, _, after = code.partition("server(x=")
    scope: dict = {}
    exec(before, scope)
    try:
        assert scope["server"](x=[[1, 0, 0]]).tolist() == [[0, 1]]
        exec("server(x=" + after, scope)
    finally:
        scope["server"].stop()
