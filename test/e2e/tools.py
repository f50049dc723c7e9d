"""Commands of the system that some tests call. Where one is missing the tests are skipped; in CI they fail."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest


def need(command: str) -> None:
    """Skips the test when the command is not installed."""
    if shutil.which(command):
        return
    assert "CI" not in os.environ, f"{command} is not installed"
    pytest.skip(f"{command} is not installed")


def certificate(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """A key and a certificate of its own for localhost, as PEM files."""
    need("openssl")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return key, cert
