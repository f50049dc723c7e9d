"""Runs the images that `make image` wrote, under podman or runc: `make test-image`.

Each is started with a read-only root and as its own user, asked, and stopped by SIGTERM. It needs root, or a user that
podman may run containers for.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request

MEAN = """\
import shoal


class Mean(shoal.Model):
    x = shoal.Input("float32", [-1])
    mean = shoal.Output("float32")

    def predict(self, x):
        return x.mean(axis=1)
"""
ROW = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 6]}]}
ROWS = {"inputs": [{"name": n, "shape": [1, 16], "datatype": "INT32", "data": [1] * 16} for n in ("INPUT0", "INPUT1")]}
LIMITS = {"shoal.tar": 60, "shoal-python.tar": 150}  # megabytes, unpacked


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def unpack(image: pathlib.Path, root: pathlib.Path) -> dict:
    """Unpacks the layers and returns the configuration."""
    with tarfile.open(image) as tar:
        read = lambda name: tar.extractfile(name).read()  # noqa: E731
        (entry,) = json.loads(read("index.json"))["manifests"]
        blob = lambda d: "blobs/sha256/" + d["digest"].removeprefix("sha256:")  # noqa: E731
        manifest = json.loads(read(blob(entry)))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=tar.extractfile(blob(layer)), mode="r:gz") as files:
                files.extractall(root, filter="fully_trusted")
        return json.loads(read(blob(manifest["config"])))["config"]


def unpacked(image: pathlib.Path) -> float:
    """The megabytes of the image's layers, unpacked."""
    with tarfile.open(image) as tar:
        (docker,) = json.loads(tar.extractfile("manifest.json").read())
        return sum(len(gzip.decompress(tar.extractfile(layer).read())) for layer in docker["Layers"]) / 1_000_000


def bundle(image: pathlib.Path, folder: pathlib.Path, args: list[str], models: pathlib.Path) -> None:
    """Writes a bundle for runc: a read-only root, the image's user, no capabilities, the host's network."""
    config = unpack(image, folder / "rootfs")
    user = int(config["User"].split(":")[0])
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "nodev", "mode=1777"]},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]},
        {"destination": "/models", "type": "bind", "source": str(models), "options": ["rbind", "ro"]},
    ]
    process = {
        "user": {"uid": user, "gid": user},
        "args": [*config["Entrypoint"], *args],
        "env": config["Env"],
        "cwd": "/",
        "noNewPrivileges": True,
    }
    namespaces = [{"type": t} for t in ("pid", "mount", "ipc", "uts")]
    spec = {
        "ociVersion": "1.0.2",
        "process": process,
        "root": {"path": "rootfs", "readonly": True},
        "mounts": mounts,
        "linux": {"namespaces": namespaces},
    }
    (folder / "config.json").write_text(json.dumps(spec))


def start(image: pathlib.Path, folder: pathlib.Path, args: list[str], models: pathlib.Path, tool: str) -> tuple[subprocess.Popen, list[str]]:
    """Starts a container and returns its process and the command that stops it."""
    name = "shoal-" + folder.name.replace("_", "-").lower()
    if tool == "podman":
        tag = "shoal:python" if "python" in image.name else "shoal:latest"
        subprocess.run(["podman", "load", "--quiet", "--input", str(image)], check=True, stdout=subprocess.DEVNULL)
        command = ["podman", "run", "--rm", "--name", name, "--read-only", "--network=host", "--volume", f"{models}:/models:ro", tag, *args]
        return subprocess.Popen(command), ["podman", "stop", "--time", "30", name]
    bundle(image, folder, args, models)
    return subprocess.Popen(["runc", "run", "--bundle", str(folder), name]), ["runc", "kill", name, "TERM"]


def ask(port: int, path: str, body: dict | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data, timeout=10) as answer:
        return answer.read().decode()


def wait_ready(port: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            ask(port, "/v2/health/ready")
            return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit("the server in the container did not become ready")
            time.sleep(0.02)


def trial(image: pathlib.Path, command: list[str], questions: list[tuple[str, dict, str]], models: pathlib.Path, tool: str) -> None:
    size = unpacked(image)
    if size > LIMITS[image.name]:
        sys.exit(f"{image} has {size:.1f} MB unpacked, want at most {LIMITS[image.name]}")
    port = free_port()
    ports = [f"--http-port={port}", "--http-address=127.0.0.1", "--allow-grpc=false", "--allow-metrics=false"]
    with tempfile.TemporaryDirectory(prefix="shoal-image-") as folder:
        begin = time.monotonic()
        process, stop = start(image, pathlib.Path(folder), [*command, *ports], models, tool)
        try:
            wait_ready(port, process)
            for path, body, want in questions:
                got = ask(port, path, body)
                print(f"{time.monotonic() - begin:5.1f} s  {path}: {got.strip()}", flush=True)
                if want not in got:
                    sys.exit(f"want {want}")
            subprocess.run(stop, check=True, stdout=subprocess.DEVNULL)
            if process.wait(40) != 0:
                sys.exit(f"the container ended with code {process.returncode}, want 0")
        finally:
            if process.poll() is None:
                process.kill()
    print(f"{image.name} ({size:.1f} MB unpacked) under {tool}: `{' '.join(command)}` serves, answers and stops in order", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=pathlib.Path, default=pathlib.Path("build/image"))
    parser.add_argument("--with", dest="tool", choices=("podman", "runc"), default="runc" if shutil.which("runc") else "podman")
    options = parser.parse_args()
    if not shutil.which(options.tool):
        sys.exit("neither runc nor podman is installed; Debian: apt install runc")
    source = pathlib.Path(__file__).resolve().parents[1] / "internal" / "demo" / "repository"
    add = ("/v2/models/add_sub/infer", ROWS, '"data":[2')
    with tempfile.TemporaryDirectory(prefix="shoal-models-") as folder:
        models = pathlib.Path(folder)
        models.chmod(0o755)
        shutil.copytree(source, models, dirs_exist_ok=True)
        trial(options.images / "shoal.tar", ["tritonserver", "--model-store=/models"], [add], models, options.tool)
        (models / "mean").mkdir()
        (models / "mean" / "model.py").write_text(MEAN)
        mean = ("/v2/models/mean/infer", ROW, '"data":[3')
        trial(options.images / "shoal-python.tar", ["serve", "--model-repository", "/models"], [add, mean], models, options.tool)


if __name__ == "__main__":
    main()
