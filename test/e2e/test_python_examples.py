"""The examples, served as their README says, against what their real model is known to say."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

import clients
import pymodels
from server import get

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
FILES = {
    "python": pathlib.Path(__file__).read_bytes(),
    "png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
    b"\x00\x00\x00\nIDATx\x9cc\x00\x01\x00\x00\x05\x00\x01\r\n-\xb4\x00\x00\x00\x00IEND\xaeB`\x82",
    "json": b'{"name": "shoal", "models": [{"name": "a", "versions": [1, 2, 3]}, {"name": "b", "versions": []}], "ready": true}\n',
    "elf": pathlib.Path(os.environ.get("SHOAL", "/bin/ls")).read_bytes()[:100000],
}


@pytest.fixture(scope="module")
def server():
    missing = [p for p in ("magika", "onnxruntime") if importlib.util.find_spec(p) is None]
    if missing:
        assert os.environ.get("CI") != "true", f"CI needs {missing}"
        pytest.skip(f"the examples need {', '.join(missing)} (test/e2e/requirements.txt)")
    with pymodels.serve(EXAMPLES) as server:
        yield server.wait_ready(60)


def content(library, *files: bytes):
    return [clients.tensor(library, "content", "BYTES", np.array([[f] for f in files], np.object_))]


def test_filetype_names_real_files(server):
    with tritonclient.http.InferenceServerClient(server.http) as client:
        got = client.infer("filetype", content(tritonclient.http, *FILES.values()))
    labels = [label.decode() for label in got.as_numpy("label")[:, 0]]
    assert labels == list(FILES)
    assert (got.as_numpy("score") > 0.5).all()


def test_filetype_triton_gives_the_best_labels_and_counts(server):
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        got = client.infer("filetype_triton", content(tritonclient.grpc, *FILES.values()), parameters={"top": 3})
        labels, scores = got.as_numpy("labels"), got.as_numpy("scores")
        assert labels.shape == scores.shape == (len(FILES), 3)
        assert [label.decode() for label in labels[:, 0]] == list(FILES)
        assert (np.diff(scores, axis=1) <= 0).all()
        with pytest.raises(InferenceServerException, match="the content is empty") as error:
            client.infer("filetype_triton", content(tritonclient.grpc, b""))
        assert error.value.status() == "StatusCode.INVALID_ARGUMENT"
    shown = get(server.metrics, "/metrics").text
    found = re.search(r'^filetype_bytes\{model="filetype_triton"\} (\d+)$', shown, re.M)
    assert found and int(found[1]) == sum(map(len, FILES.values())), shown
