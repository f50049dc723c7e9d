"""The server's binary: where it is, and the commands that pip installs for it."""

from __future__ import annotations

import os
import shutil
import sys


class ServeError(RuntimeError):
    """The server did not start, or ended."""


def find_binary() -> str:
    """The path of the server's binary: by $SHOAL, beside this package, beside Python, or on the path."""
    named = os.environ.get("SHOAL")
    if named:
        if not os.access(named, os.X_OK):
            raise ServeError(f"the environment variable SHOAL names {named}, which is no program that can be run")
        return named
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "shoal")
    near = os.path.join(os.path.dirname(sys.executable), "shoal")
    for path in (beside, near, shutil.which("shoal") or ""):
        if path and os.access(path, os.X_OK) and not _is_script(path):
            return path
    raise ServeError(
        "the server's binary was not found: put `shoal` on the PATH (make install), or name it in the environment variable SHOAL"
    )


def _is_script(path: str) -> bool:
    """Whether path is a script, such as pip's command `shoal`, which would only call this again."""
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def main() -> None:
    """Becomes the binary, which acts as the command that it is called by: shoal, tritonserver, perf_analyzer, ..."""
    name = os.path.basename(sys.argv[0])
    try:
        binary = find_binary()
    except ServeError as error:
        sys.exit(f"{name}: {error}")
    # Models run in the Python that the package is installed for, and ONNX Runtime is found there, whatever the PATH says.
    os.environ.setdefault("SHOAL_PYTHON", sys.executable)
    os.execv(binary, [name, *sys.argv[1:]])
