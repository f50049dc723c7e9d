"""Forty mistakes of beginners. Each gets a sentence that names the file or flag, what was found, and what to do."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest
from onnx import TensorProto

import graphs
import pymodels
from server import BINARY, LOOPBACK, PORTS, Server, environment, taken_port

GRAPH = graphs.add_sub(TensorProto.FLOAT, TensorProto.FLOAT, ["batch", 16])
MODEL = "import shoal\n\n\nclass M(shoal.Model):\n    x = shoal.Input('float32', [-1])\n    y = shoal.Output('float32', [-1])\n\n"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614\nsize 12345\n"
SHAPES = """\
max_batch_size: 8
input [
  { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1, 16 ] },
  { name: "INPUT1" data_type: TYPE_INT32 dims: [ 16 ] }
]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 16 ] } ]
"""

# What is in the folder that the commands run in.
FILES: dict[str, bytes | str] = {
    "flat/resnet.onnx": GRAPH,
    "folder/config.pbtxt": 'backend: "onnxruntime"\n',
    "folder/1/model.onnx": GRAPH,
    "only_config/m/config.pbtxt": 'backend: "onnxruntime"\n',
    "no_version/m/model.onnx": GRAPH,
    "no_file/m/config.pbtxt": 'backend: "onnxruntime"\n',
    "no_file/m/1/.keep": "",
    "no_config/m/1/.keep": "",
    "other_name/m/1/resnet50.onnx": GRAPH,
    "v1/m/v1/model.onnx": GRAPH,
    "zeros/m/001/model.onnx": GRAPH,
    "notes/readme.txt": "",
    "torch/m/1/model.pt": b"PK\x03\x04",
    "nested/models/m/1/model.onnx": GRAPH,
    "gpu/m/config.pbtxt": "instance_group [ { kind: KIND_GPU } ]\n",
    "gpu/m/1/model.onnx": GRAPH,
    "typos/m/config.pbtxt": 'backend "onnxruntime"\nmax_batch_sise: 4\ninput [ { name: "INPUT0" data_type: FP32 dims: [ 16 ] } ]\n',
    "typos/m/1/model.onnx": GRAPH,
    "shapes/m/config.pbtxt": SHAPES,
    "shapes/m/1/model.onnx": GRAPH,
    "json/m/config.pbtxt": '{"max_batch_size": 8}\n',
    "json/m/1/model.onnx": GRAPH,
    "yaml/m/config.pbtxt": "name: m\nmax_batch_size: 8\n",
    "yaml/m/1/model.onnx": GRAPH,
    "page/m/1/model.onnx": "<!DOCTYPE html><html>404</html>",
    "lfs/m/1/model.onnx": LFS,
    "hollow/m/1/model.onnx": b"",
    "zip/m/1/model.onnx": b"PK\x03\x04" + b"\0" * 60,
    "platform/m/config.pbtxt": 'platform: "onnxruntime"\n',
    "platform/m/1/model.onnx": GRAPH,
    "plan/m/config.pbtxt": 'platform: "tensorrt_plan"\n',
    "plan/m/1/model.plan": b"x",
    "policy/m/config.pbtxt": "version_policy { specific { versions: [ 3 ] } }\n",
    "policy/m/1/model.onnx": GRAPH,
    "good/digits/1/model.onnx": GRAPH,
    "syntax.py": "import shoal\n\n\nclass M(shoal.Model)\n    pass\n",
    "no_model.py": "def predict(x):\n    return x\n",
    "typo_import.py": "import shoal\nimport torchvisionn\n",
    "no_input.py": "import shoal\n\n\nclass M(shoal.Model):\n    def predict(self, x):\n        return x\n",
    "load.py": MODEL + "    def load(self):\n        open('weights.bin')\n\n    def predict(self, x):\n        return x\n",
    "mean.py": MODEL + "    def predict(self, x):\n        return x\n",
}

# The command after `shoal` and what it says, as a regular expression. A command that begins with + goes on to serve.
MISTAKES: list[tuple[str, str, str]] = [
    ("a misspelt command", "sevre --demo", 'unknown command "sevre" for "shoal"; did you mean serve?'),
    ("no models at all", "serve", "--model-repository is required .or --model FILE.py, or --demo"),
    ("a folder without its flag", "serve good", '"good" is not expected: .* did you mean --model-repository good?'),
    ("a file without its flag", "serve mean.py", '"mean.py" is not expected: .* did you mean --model mean.py?'),
    ("a misspelt flag", "serve --model-repositry good", "unknown flag: --model-repositry; did you mean --model-repository?"),
    ("a flag without its value", "check good --python", "--python needs a value"),
    ("a flag with a bad value", "serve --demo --http-port http", '--http-port is "http": want a whole number'),
    ("a port out of range", "serve --demo --http-port 80000", "--http-port is 80000, want 0 to 65535"),
    ("a port that is taken", "serve --demo --http-port TAKEN", "port TAKEN is taken by another process; choose another with --http-port"),
    ("a misspelt repository", "serve --model-repository goood", '--model-repository "goood": no such file or directory; did you mean "good"?'),
    ("a repository that is nowhere", "serve --model-repository a/b", '--model-repository "a/b": no such file or directory; the folders in .*/a are nothing'),
    ("an empty repository", "+serve --model-repository empty", "nothing is served: empty is empty, and a repository has a folder for each model, as in empty/NAME/1/model.onnx; `shoal serve --demo`"),
    ("a flat repository", "+serve --model-repository flat", "nothing is served: flat has resnet.onnx and no folders, .* serve the files with `shoal serve --model flat/resnet.onnx`"),
    ("a repository without models", "+serve --model-repository notes", "nothing is served: notes has no folders, only readme.txt, and a repository has a folder for each model"),
    ("a file as a repository", "serve --model-repository flat/resnet.onnx", 'not a directory; serve a single file with `shoal serve --model flat/resnet.onnx`'),
    ("a model as a repository", "serve --model-repository folder", "folder is a model's folder, not a repository: it has config.pbtxt, 1; serve it with `shoal serve --model folder`"),
    ("a repository in a repository", "serve --model-repository nested", "nested/models is a repository itself, with the model m: serve it with --model-repository nested/models"),
    ("a repository as a model", "serve --model good", "good is a repository itself, with the model digits: serve it with --model-repository .*/good"),
    ("an object store", "serve --model-repository s3://b/m", "object stores are not supported; copy the models into a local folder"),
    ("a configuration alone", "serve --model-repository only_config", "only_config/m has config.pbtxt and no version folder: put the model's file at only_config/m/1/model.onnx"),
    ("no version folder", "serve --model-repository no_version", "no_version/m has model.onnx but no version folder: `mkdir no_version/m/1 && mv no_version/m/model.onnx no_version/m/1`"),
    ("a version folder v1", "serve --model-repository v1", "a version's folder is a number without leading zeros, and v1/m has v1: `mv v1/m/v1 v1/m/1`"),
    ("a version with zeros", "serve --model-repository zeros", "`mv zeros/m/001 zeros/m/1`"),
    ("a policy for a missing version", "serve --model-repository policy", "version_policy chooses none of the versions in policy/m, which are 1"),
    ("no model file", "serve --model-repository no_file", "unable to find 'no_file/m/1/model.onnx' for model 'm'; no_file/m/1 is empty: put the model's file there"),
    ("neither file nor configuration", "serve --model-repository no_config", "no_config/m/1 is empty: put the model's file there"),
    ("a file of another name", "serve --model-repository other_name", "other_name/m/1 has resnet50.onnx: `mv .*`, or write default_model_filename: .*resnet50.onnx.* into other_name/m/config.pbtxt"),
    ("a PyTorch file", "serve --model-repository torch", "unable to find backend library for backend 'pytorch' of model 'm'; .* export the model to ONNX, or load it in a Python model"),
    ("a TensorRT plan", "serve --model-repository plan", "unable to find backend library for backend 'tensorrt' of model 'm'; .* export the model to ONNX, or load it in a Python model"),
    ("a backend as a platform", "serve --model-repository platform", "'onnxruntime' is a backend, not a platform: write backend: .*onnxruntime"),
    ("a web page", "serve --model-repository page", "page/m/1/model.onnx failed:.* the file is a web page, not the model: download it again"),
    ("a pointer of Git LFS", "serve --model-repository lfs", "lfs/m/1/model.onnx failed:.* the file is a pointer of Git LFS, not the model: run `git lfs pull`"),
    ("an empty file", "serve --model-repository hollow", "hollow/m/1/model.onnx.* the file is empty: copy or download it again"),
    ("a pickled model", "serve --model-repository zip", "zip/m/1/model.onnx failed:.* the file is a zip archive, .* torch.onnx.export"),
    ("a GPU that is not there", "serve --model-repository gpu", "kind KIND_GPU but server does not support GPUs; write kind: KIND_CPU"),
    ("a configuration in JSON", "serve --model-repository json", "json/m/config.pbtxt:1:1: .* this file has protobuf's text format, not JSON; write max_batch_size: 8"),
    ("a configuration in YAML", "serve --model-repository yaml", "yaml/m/config.pbtxt:1:7: name: expected a string in quotes, got m"),
    ("three typing errors", "serve --model-repository typos", "config.pbtxt:1:1: backend: ':' is missing.*config.pbtxt:2:1: unknown field max_batch_sise; did you mean max_batch_size?.*config.pbtxt:3:.* unknown value FP32; did you mean TYPE_FP32?"),
    ("wrong dims, type and name", "serve --model-repository shapes", "config.pbtxt:3: .*'INPUT0': the model expects 2 dimensions.*config.pbtxt:4: .*TYPE_INT32 for input 'INPUT1', model provides TYPE_FP32.*config.pbtxt:6: unexpected inference output 'OUT', allowed outputs are: OUTPUT0, OUTPUT1"),
    ("a misspelt model to load", "serve --model-repository good --model-control-mode explicit --load-model digit", 'no repository has a folder of that name; did you mean .*digits'),
    ("a misspelt file", "serve --model maen.py", "--model maen.py: .*/maen.py: no such file or folder; did you mean mean.py?"),
    ("a file of another kind", "serve --model torch/m/1/model.pt", "want a file that ends in .py or .onnx, .* export a model of another framework to ONNX"),
    ("a syntax error", "serve --model syntax.py", "FOLDER/syntax.py.*, line 4.*class M.shoal.Model..*SyntaxError: expected ':'"),
    ("a Python file without a model", "serve --model no_model.py", "FOLDER/no_model.py has no model: expected a class TritonPythonModel, a subclass of shoal.Model, or a function with the decorator @shoal.model"),
    ("a module that is not installed", "serve --model typo_import.py", "FOLDER/typo_import.py.*, line 2, in <module>.*import torchvisionn.*ModuleNotFoundError: No module named 'torchvisionn'"),
    ("a model without inputs", "serve --model no_input.py", "M declares no inputs; write them as class attributes, x = shoal.Input.'float32', .-1.."),
    ("a file that load does not find", "serve --model load.py", "FOLDER/load.py.*, line 9, in load.*open.'weights.bin'.*FileNotFoundError: .*weights.bin"),
    ("a check of nothing", "check", "name the repository to check"),
    ("a check of a flat folder", "check flat", "serve the files with `shoal serve --model flat/resnet.onnx`"),
    ("a measurement without a model", "perf", "-m is missing; it names the model"),
    ("a server that is not there", "perf -m digits -u 127.0.0.1:1", "the server cannot be reached: .* is a server listening for http there\\? -u says where else"),
    ("a view without a terminal", "top", "the live view needs a terminal; use --once for a table"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("mistakes")
    (root / "empty").mkdir()
    for name, content in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def test_there_are_forty():
    assert len(MISTAKES) >= 40


@pytest.mark.parametrize("command, says", [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_told_with_what_to_do(folder, command, says):
    taken, port = taken_port()
    with taken:
        args = command.replace("TAKEN", str(port)).split()
        says = says.replace("TAKEN", str(port)).replace("FOLDER", re.escape(str(folder))).replace("?", r"\?").replace(r"\\?", r"\?")
        if args[0] in ("serve", "+serve"):
            given = " ".join(args)
            args += [*LOOPBACK, *(p for p in PORTS if p.split("=")[0] not in given), pymodels.PYTHON]
        if args[0].startswith("+"):
            with Server(*args[1:], cwd=folder) as server:
                server.wait_for_log(says)
            return
        got = subprocess.run([str(BINARY), *args], cwd=folder, env=environment(), capture_output=True, text=True, timeout=60)
    told = (got.stdout + got.stderr).replace('\\"', '"').replace("\\n", "\n")
    assert got.returncode != 0 and re.search(says, told, re.S), f"got\n{told}\nwant {says}"
    assert "_worker.py" not in told and "shoal-run" not in told, f"our own files are of no use to the user:\n{told}"
