"""Writes container images (OCI, as a tar file) without a daemon: `make image`.

    python deploy/image.py --binary build/release/shoal-linux-amd64 --to build/image

shoal.tar serves ONNX models: the binary, ONNX Runtime and the few libraries of Debian that it needs; nothing else, no
shell. shoal-python.tar adds Python and numpy for Python models. The user is 1000, the root may be read-only; Python models and
`--demo` need a writable /tmp. The entrypoint takes `tritonserver ...`, `shoal ...`, or the arguments of shoal.

Libraries come from the Debian packages of this machine's release (apt-get download), numpy from pip. It needs Debian or
Ubuntu, Python 3.11 and pip, no root. `podman load -i` and `docker load -i` take the files.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

MEGABYTE = 1_000_000
USER = 1000
NAMES = ("tritonserver", "perf_analyzer", "multi-model-server", "mxnet-model-server", "model-archiver", "torchserve", "torch-model-archiver")

# Of each Debian package, the files that are kept; TRIPLET is x86_64-linux-gnu or aarch64-linux-gnu.
BASE = {
    "libc6": r"/(ld-linux-[^/]*|lib(c|m|dl|rt|pthread|resolv|nss_dns|nss_files)\.so\.\d+)$",
    "libstdc++6": r"/libstdc\+\+\.so\.6[\d.]*$",
    "libgcc-s1": r"/libgcc_s\.so\.1$",
}
PYTHON = {
    "python3.X-minimal": r"^usr/bin/python3\.\d+$",
    "libpython3.X-minimal": r"^usr/lib/python3",
    "libpython3.X-stdlib": r"^usr/lib/python3(?!.*/(test|idlelib|lib2to3|ensurepip|pydoc_data|turtledemo)/)",
    "libexpat1": r"\.so",
    "zlib1g": r"\.so",
    "libffi8": r"\.so",
    "libssl3": r"\.so\.",
    "libbz2-1.0": r"\.so",
    "liblzma5": r"\.so",
}


def say(text: str) -> None:
    print(text, flush=True)


def run(*command: object, cwd: pathlib.Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(str(c) for c in command)}: exit {done.returncode}")
    return done.stdout


class Packages:
    """Debian packages, downloaded once into a folder."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def files(self, name: str, keep: str) -> dict[str, pathlib.Path]:
        """The files of a package whose path matches, by path without the leading slash."""
        unpacked = self._folder / name
        if not unpacked.exists():
            # As root, apt would download as a user that may not write here, and warn.
            run("apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", name, cwd=self._folder)
            (deb,) = self._folder.glob(f"{name}_*.deb")
            run("dpkg-deb", "-x", deb, unpacked)
            deb.unlink()
        found = {p.relative_to(unpacked).as_posix(): p for p in unpacked.rglob("*") if p.is_symlink() or p.is_file()}
        return {path: p for path, p in found.items() if re.search(keep, path)}

    def python(self) -> str:
        """The minor version of the release's Python: 3.11."""
        found = re.search(r"python(3\.\d+)-minimal", run("apt-cache", "show", "python3-minimal"))
        assert found, "apt knows no python3-minimal"
        return found.group(1)


class Layer:
    """One layer: a tar file whose bytes depend on its content only."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w", format=tarfile.GNU_FORMAT)
        self._folders: set[str] = set()

    def _info(self, path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
        for folder in reversed(pathlib.PurePosixPath(path).parents):
            if str(folder) != "." and str(folder) not in self._folders:
                self.folder(str(folder))
        info = tarfile.TarInfo(path)
        info.type, info.mode = kind, mode
        return info

    def folder(self, path: str, mode: int = 0o755) -> None:
        self._folders.add(path)
        self._tar.addfile(self._info(path, tarfile.DIRTYPE, mode))

    def text(self, path: str, content: str) -> None:
        info = self._info(path, tarfile.REGTYPE, 0o644)
        info.size = len(content.encode())
        self._tar.addfile(info, io.BytesIO(content.encode()))

    def link(self, path: str, to: str) -> None:
        info = self._info(path, tarfile.SYMTYPE, 0o777)
        info.linkname = to
        self._tar.addfile(info)

    def file(self, path: str, source: pathlib.Path, mode: int | None = None) -> None:
        if source.is_symlink():
            return self.link(path, os.readlink(source))
        info = self._info(path, tarfile.REGTYPE, mode or (0o755 if os.access(source, os.X_OK) else 0o644))
        info.size = source.stat().st_size
        with source.open("rb") as file:
            self._tar.addfile(info, file)

    def bytes(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()


@dataclasses.dataclass
class Image:
    """An image that is being made."""

    arch: str
    layers: list[bytes]
    env: list[str]

    def write(self, path: pathlib.Path, name: str) -> None:
        """Writes an OCI layout as a tar file, with docker's own manifest beside it."""
        blobs: dict[str, bytes] = {}

        def add(content: bytes, kind: str) -> dict:
            digest = hashlib.sha256(content).hexdigest()
            blobs[f"blobs/sha256/{digest}"] = content
            return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

        layers = [add(gzip.compress(layer, 9, mtime=0), "layer.v1.tar+gzip") for layer in self.layers]
        config = add(json.dumps(self._config()).encode(), "config.v1+json")
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": layers}
        entry = add(json.dumps(manifest).encode(), "manifest.v1+json")
        entry["annotations"] = {"org.opencontainers.image.ref.name": name}
        entry["platform"] = {"os": "linux", "architecture": self.arch}
        blobs["oci-layout"] = b'{"imageLayoutVersion":"1.0.0"}'
        blobs["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
        docker = {"Config": file_of(config), "RepoTags": [name], "Layers": [file_of(layer) for layer in layers]}
        blobs["manifest.json"] = json.dumps([docker]).encode()
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
            for file in sorted(blobs):
                info = tarfile.TarInfo(file)
                info.size = len(blobs[file])
                tar.addfile(info, io.BytesIO(blobs[file]))
        unpacked = sum(len(layer) for layer in self.layers)
        say(f"{path}: {path.stat().st_size / MEGABYTE:.1f} MB compressed, as it is pulled; {unpacked / MEGABYTE:.1f} MB unpacked, as it is on disk")

    def _config(self) -> dict:
        return {
            "architecture": self.arch,
            "os": "linux",
            "config": {
                "User": f"{USER}:{USER}",
                "Env": ["PATH=/usr/bin", "HOME=/tmp", *self.env],
                "Entrypoint": ["/usr/bin/shoal-entrypoint"],
                "Cmd": ["serve", "--model-repository", "/models"],
                "WorkingDir": "/",
                "ExposedPorts": {"8000/tcp": {}, "8001/tcp": {}, "8002/tcp": {}},
                "Volumes": {"/tmp": {}},
                "StopSignal": "SIGTERM",
                "Labels": {"org.opencontainers.image.title": "shoal", "org.opencontainers.image.licenses": "Apache-2.0"},
            },
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in self.layers]},
        }


def file_of(blob: dict) -> str:
    return "blobs/sha256/" + blob["digest"].removeprefix("sha256:")


def system(packages: Packages) -> bytes:
    """Libraries, users and folders."""
    layer = Layer()
    for path in ("models", "etc/ssl/certs"):
        layer.folder(path)
    layer.folder("tmp", 0o1777)
    layer.text("etc/passwd", f"root:x:0:0:root:/:/\nshoal:x:{USER}:{USER}:shoal:/tmp:/\n")
    layer.text("etc/group", f"root:x:0:\nshoal:x:{USER}:\n")
    layer.text("etc/nsswitch.conf", "hosts: files dns\n")
    authorities = packages.files("ca-certificates", r"^usr/share/ca-certificates/.*\.crt$")  # for traces and archives over HTTPS
    layer.text("etc/ssl/certs/ca-certificates.crt", "".join(authorities[name].read_text() for name in sorted(authorities)))
    put(layer, packages, BASE)
    return layer.bytes()


def put(layer: Layer, packages: Packages, wanted: dict[str, str]) -> None:
    """Adds the packages' files, those of /lib below /usr/lib, and links to them where programs expect them."""
    for name, keep in wanted.items():
        for path, source in sorted(packages.files(name, keep).items()):
            layer.file(path if path.startswith("usr/") else "usr/" + path, source)
    if "libc6" in wanted:
        layer.link("lib", "usr/lib")
        layer.link("lib64", "usr/lib64")


def server(binary: pathlib.Path, library: pathlib.Path, triplet: str) -> bytes:
    """The binary under its names, and ONNX Runtime."""
    layer = Layer()
    layer.file("usr/bin/shoal", binary, 0o755)
    for name in (*NAMES, "shoal-entrypoint"):
        layer.link(f"usr/bin/{name}", "shoal")
    layer.file(f"usr/lib/{triplet}/{library.name}", library, 0o644)
    return layer.bytes()


def python(packages: Packages, work: pathlib.Path, arch: str) -> bytes:
    """Python with numpy."""
    version = packages.python()
    layer = Layer()
    put(layer, packages, {name.replace("3.X", version): keep for name, keep in PYTHON.items()})
    layer.link("usr/bin/python3", f"python{version}")
    target = work / f"numpy-{arch}-{version}"
    if not target.exists():
        platform = "manylinux2014_x86_64" if arch == "amd64" else "manylinux2014_aarch64"
        run(sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:",
            "--platform", platform, "--python-version", version, "--implementation", "cp", "--target", target, "numpy>=1.26")  # fmt: skip
    for source in sorted(p for p in target.rglob("*") if p.is_file()):
        path = source.relative_to(target)
        if not {"tests", "include", "__pycache__", "bin"} & set(path.parts) and source.suffix != ".pyi" and source.suffix != ".a":
            layer.file(f"usr/lib/python3/dist-packages/{path.as_posix()}", source)
    return layer.bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the server for this machine's architecture")
    parser.add_argument("--to", type=pathlib.Path, default=pathlib.Path("build/image"), help="folder for the images")
    options = parser.parse_args()
    for tool in ("apt-get", "dpkg-deb"):
        if not shutil.which(tool):
            sys.exit(f"{tool} is missing: images are made of Debian's packages, on Debian or Ubuntu")
    arch = run("dpkg", "--print-architecture").strip()
    triplet = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[arch]
    options.to.mkdir(parents=True, exist_ok=True)
    work = options.to.absolute() / "parts"
    packages = Packages(work / "packages")
    say("ONNX Runtime ...")
    got = run(options.binary.absolute(), "runtime", "install", "--json", env={"XDG_DATA_HOME": str(work / "data")})
    library = pathlib.Path(json.loads(got)["path"])
    say("libraries of Debian ...")
    layers = [system(packages), server(options.binary, library, triplet)]
    env = [f"SHOAL_ONNXRUNTIME_LIBRARY=/usr/lib/{triplet}/{library.name}"]
    Image(arch, layers, env).write(options.to / "shoal.tar", "shoal:latest")
    say("Python ...")
    layers.insert(1, python(packages, work, arch))
    Image(arch, layers, [*env, "PYTHONPATH=/usr/lib/python3/dist-packages"]).write(options.to / "shoal-python.tar", "shoal:python")


if __name__ == "__main__":
    main()
