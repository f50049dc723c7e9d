"""NVIDIA's own load tool runs against the server: a smoke test, for machines that have it.

PERF_ANALYZER names the binary; the manylinux wheel of tritonclient 2.51.0 has one under data/bin.
"""

import os
import re
import subprocess

import pytest

TOOL = os.environ.get("PERF_ANALYZER", "")


@pytest.mark.peer
@pytest.mark.skipif(not TOOL, reason="PERF_ANALYZER does not name a perf_analyzer")
@pytest.mark.parametrize("flags", [
    ["-i", "http"],
    ["-i", "http", "--input-tensor-format=json", "--output-tensor-format=json"],
    ["-i", "grpc", "--async"],
    ["-i", "grpc", "--streaming", "--async"],
    ["-i", "http", "-b", "4"],
], ids=" ".join)  # fmt: skip
def test_perf_analyzer_measures_without_errors(target, flags):
    address = target.http if "http" in flags else target.grpc
    command = [TOOL, "-m", "simple", "-u", address, *flags, "--concurrency-range", "4"]
    # Short windows and no wish for stability; with --request-count the tool can wait for ever for its own threads.
    command += ["--measurement-interval", "300", "--stability-percentage", "999"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Throughput: [1-9]", done.stdout), done.stdout
    # It reads the server's statistics as well.
    assert re.search(r"Inference count: [1-9]|Request count: [1-9]", done.stdout), done.stdout
