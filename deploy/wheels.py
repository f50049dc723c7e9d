"""Writes wheels of the Python package with the server's binary inside: `make wheels`.

    python deploy/wheels.py --to build/wheels manylinux_2_17_x86_64=build/release/shoal-linux-amd64 ...

Each argument is a platform tag and the binary for it. The metadata is that of python/pyproject.toml. Two runs over the
same files write the same bytes. It needs Python 3.11 or newer and nothing else.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import pathlib
import tomllib
import zipfile

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "python"
MEGABYTE = 1_000_000


def project() -> dict:
    """What pyproject.toml says of the package."""
    return tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]


def metadata(project: dict) -> str:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        "License-File: LICENSE",
        f"Requires-Python: {project['requires-python']}",
        *(f"Classifier: {c}" for c in project["classifiers"]),
        *(f"Requires-Dist: {d}" for d in project["dependencies"]),
    ]
    for extra, needs in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {n} ; extra == "{extra}"' for n in needs)]
    lines.append("Description-Content-Type: text/markdown")
    return "\n".join(lines) + "\n\n" + (PACKAGE / project["readme"]).read_text()


class Wheel:
    """A wheel that is being written, with its record."""

    def __init__(self, path: pathlib.Path, level: int):
        self._zip, self._level = zipfile.ZipFile(path, "w"), level
        self._record: list[str] = []

    def add(self, name: str, content: bytes, mode: int = 0o644) -> None:
        info = zipfile.ZipInfo(name)  # of 1980: the same bytes every time
        info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
        self._zip.writestr(info, content, compresslevel=self._level)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self._record.append(f"{name},sha256={digest},{len(content)}")

    def close(self, record: str) -> None:
        self._record.append(f"{record},,")
        self.add(record, ("\n".join(self._record) + "\n").encode())
        self._zip.close()


def write(to: pathlib.Path, platform: str, binary: pathlib.Path, level: int = 9) -> pathlib.Path:
    """Writes one wheel, compressed by a level from 0 to 9, and returns its path."""
    about = project()
    stem = f"{about['name']}-{about['version']}"
    path = to / f"{stem}-py3-none-{platform}.whl"
    wheel = Wheel(path, level)
    files = [file for folder in ("shoal", "SimpleDBI") for file in sorted((PACKAGE / folder).glob("*.py"))]
    for file in [*files, PACKAGE / "shoal" / "py.typed", PACKAGE / "triton_python_backend_utils.py"]:
        wheel.add(file.relative_to(PACKAGE).as_posix(), file.read_bytes())
    wheel.add("shoal/bin/shoal", binary.read_bytes(), 0o755)
    info = f"{stem}.dist-info"
    scripts = "".join(f"{name} = {target}\n" for name, target in about["scripts"].items())
    wheel.add(f"{info}/METADATA", metadata(about).encode())
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: shoal\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n".encode())
    wheel.add(f"{info}/entry_points.txt", f"[console_scripts]\n{scripts}".encode())
    wheel.add(f"{info}/licenses/LICENSE", (PACKAGE.parent / "LICENSE").read_bytes())
    wheel.close(f"{info}/RECORD")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=pathlib.Path, default=pathlib.Path("build/wheels"), help="folder for the wheels")
    parser.add_argument("wheel", nargs="+", help="PLATFORM=BINARY")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    for wanted in options.wheel:
        platform, _, binary = wanted.partition("=")
        path = write(options.to, platform, pathlib.Path(binary))
        print(f"{path} {path.stat().st_size / MEGABYTE:.1f} MB")


if __name__ == "__main__":
    main()
