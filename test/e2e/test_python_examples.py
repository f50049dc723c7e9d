"""The examples, served as their README says, against what their real model is known to say."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

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


def need(*packages: str) -> None:
    missing = [p for p in packages if importlib.util.find_spec(p) is None]
    if missing:
        assert os.environ.get("CI") != "true", f"CI needs {missing}"
        pytest.skip(f"the examples need {', '.join(missing)} (test/e2e/requirements.txt)")


@pytest.fixture(scope="module")
def server():
    need("magika", "onnxruntime")
    with pymodels.serve(EXAMPLES, "--model-control-mode=explicit", "--load-model=filetype", "--load-model=filetype_triton") as server:
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


@pytest.fixture(scope="module")
def ocr(tmp_path_factory):
    need("PIL")
    folder = tmp_path_factory.mktemp("ocr")
    fetched = subprocess.run([sys.executable, EXAMPLES / "ocr" / "fetch.py", folder], capture_output=True, text=True)
    if fetched.returncode != 0:
        assert os.environ.get("CI") != "true", fetched.stderr
        pytest.skip(f"the models of examples/ocr cannot be fetched: {fetched.stderr}")
    sys.path.insert(0, str(EXAMPLES / "ocr"))
    sys.path.insert(0, str(pymodels.PACKAGE))
    import example

    with pymodels.serve(folder / "models") as server:
        yield server.wait_ready(60), example
    sys.path.remove(str(EXAMPLES / "ocr"))
    sys.path.remove(str(pymodels.PACKAGE))


def read(server, model: str, data: bytes):
    with tritonclient.http.InferenceServerClient(server.http) as client:
        return client.infer(model, [clients.tensor(tritonclient.http, "picture", "BYTES", np.array([data], np.object_))])


@pytest.mark.parametrize("model", ["ocr", "ocr_bls"])
def test_ocr_reads_every_line(ocr, model):
    server, example = ocr
    picture = example.render(example.LINES)
    got = read(server, model, example.file_of(picture))
    assert [t.decode() for t in got.as_numpy("text")] == example.LINES
    boxes = got.as_numpy("boxes")
    assert (boxes[:, :2] < boxes[:, 2:]).all() and (np.diff(boxes[:, 1]) > 0).all(), boxes
    for left, top, right, bottom in boxes:
        assert np.asarray(picture.convert("L"))[top:bottom, left:right].min() < 128  # there is ink in it


@pytest.mark.parametrize("model", ["ocr", "ocr_bls"])
def test_ocr_says_what_is_wrong_with_a_picture(ocr, model):
    from PIL import Image

    server, example = ocr
    png = example.file_of(Image.effect_noise((256, 256), 64))
    faults = {
        "the picture is empty (0 bytes); send the bytes of a picture file": b"",
        "the 14 bytes are no picture; send the bytes of a picture file": b"not a picture\n",
        "the picture has 10000 x 5000 pixels (50.0 million); at most 20 million are read": example.file_of(Image.new("1", (10000, 5000))),
        "the picture is damaged: ": png[: len(png) // 2],
    }
    for want, data in faults.items():
        with pytest.raises(InferenceServerException) as error:
            read(server, model, data)
        assert want in error.value.message() and error.value.status() == "400", error.value
    blank = read(server, model, example.file_of(Image.new("RGB", (300, 200), "white")))
    assert blank.as_numpy("text").shape == (0,) and blank.as_numpy("boxes").shape == (0, 4)
