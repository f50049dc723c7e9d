"""Tries the wheels as a new user would: `make test-wheels`.

In an empty folder, with an empty home: a virtual environment, `pip install "shoal[onnx]"` with shoal from the local
folder and the rest from the registry, the demo and a Python model served, one answer of each. Prints a transcript with
times. Fails if the wheel is not what is installed, or an answer is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

MEAN = """\
import shoal


class Mean(shoal.Model):
    x = shoal.Input("float32", [-1])
    mean = shoal.Output("float32")

    def predict(self, x):
        return x.mean(axis=1)
"""
DIGIT = {"inputs": [{"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": [0.0] * 64}]}
ROW = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 6]}]}


def ask(address: str, model: str, body: dict) -> dict:
    url = f"http://{address}/v2/models/{model}/infer"
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=30) as answer:
        return {o["name"]: o["data"] for o in json.load(answer)["outputs"]}


class Trial:
    def __init__(self, folder: pathlib.Path, wheels: pathlib.Path):
        self.folder, self.wheels, self.begin = folder, wheels, time.monotonic()
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("SHOAL", "PYTHON", "VIRTUAL_ENV", "XDG"))}
        self.env = {**keep, "HOME": str(folder / "home")}
        (folder / "home").mkdir()
        (folder / "mean.py").write_text(MEAN)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.begin:6.1f} s  {text}", flush=True)

    def run(self, *command: object, output: int | None = None) -> None:
        self.say("$ " + " ".join(str(c).replace(f"{self.folder}/", "") for c in command))
        subprocess.run([str(c) for c in command], check=True, cwd=self.folder, env=self.env, stdout=output)

    def pip(self) -> None:
        """Installs in two steps: what is local without a registry, then its dependencies from one."""
        self.run("venv/bin/pip", "install", "--quiet", "--no-index", "--no-deps", "--find-links", self.wheels, "shoal")
        self.run("venv/bin/pip", "install", "--quiet", "--find-links", self.wheels, "shoal[onnx]")

    def serve(self) -> None:
        command = ["venv/bin/shoal", "serve", "--demo", "--model", "mean.py", "--http-port=0", "--grpc-port=0", "--metrics-port=0",
                   "--http-address=127.0.0.1"]  # fmt: skip
        self.say("$ " + " ".join(command))
        server = subprocess.Popen(command, cwd=self.folder, env=self.env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        try:
            assert server.stderr is not None
            address, seen = "", []
            for line in server.stderr:
                seen.append(line)
                found = re.search(r"listening.*protocol=http .*?address=\"?([^\s\"]+)", line)
                address = found.group(1) if found else address
                if "msg=ready" in line:
                    break
            else:
                sys.exit("the server ended:\n" + "".join(seen))
            self.say(f"mean answers {ask(address, 'mean', ROW)}")
            answer = ask(address, "digits", DIGIT)
            self.say(f"digits answers {answer['label']}")
            assert ask(address, "mean", ROW) == {"mean": [3.0]}, "mean of 1, 2, 6"
        finally:
            server.terminate()
            server.stderr.close()
            assert server.wait(30) == 0, "the server did not stop in order"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=pathlib.Path, default=pathlib.Path("build/wheels"))
    parser.add_argument("--limit", type=float, default=0, help="fail if it takes longer, in seconds; 0 is no limit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shoal-wheels-") as folder:
        trial = Trial(pathlib.Path(folder), options.wheels.absolute())
        trial.run(sys.executable, "-m", "venv", "venv")
        begin = time.monotonic()
        trial.pip()
        trial.serve()
        took = time.monotonic() - begin
        trial.run("venv/bin/python", "-c", "import shoal; s = shoal.serve(lambda x: x, inputs={'x': 'float32'}, outputs={'y': 'float32'}); s.stop()")
        for name in ("tritonserver", "perf_analyzer", "multi-model-server", "torch-model-archiver"):
            trial.run(f"venv/bin/{name}", "--help", output=subprocess.DEVNULL)
    print(f"from pip install to the first answers: {took:.1f} s")
    if options.limit and took > options.limit:
        sys.exit(f"that is more than {options.limit:g} s")


if __name__ == "__main__":
    main()
