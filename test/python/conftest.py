import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(pathlib.Path(__file__).parent)]

import fakes  # noqa: E402


@pytest.fixture
def worker(monkeypatch):
    return fakes.worker(monkeypatch)
