"""Requests that the server rejects: counted by model and reason, logged, and shown by top."""

from __future__ import annotations

import json
import re
import subprocess

import numpy as np
import pytest
import tritonclient.grpc as grpc_library
import tritonclient.http as http_library
from tritonclient.utils import InferenceServerException

import clients
import models
import rawhttp
import server

FAMILY = re.compile(r"^shoal_requests_rejected_total\{(.*)\} (\d+)$", re.MULTILINE)


def rejected(running: server.Server) -> dict[str, int]:
    """Every count that is not zero, as "protocol model/version reason"."""
    found = {}
    for labels, count in FAMILY.findall(server.get(running.metrics, "/metrics").text):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if int(count):
            found[f"{of['protocol']} {of['model']}/{of['version']} {of['reason']}"] = int(count)
    return found


@pytest.fixture
def running(serve):
    return serve(
        "--log-verbose=1",
        "--http-max-input-size=65536",
        "--grpc-max-message-size=65536",
        "--http-restricted-api=model-config:key=secret",
        "--grpc-restricted-protocol=model-config:key=secret",
        wanted=(models.simple(),),
    ).wait_ready()


def curl(running: server.Server, path: str, *args: str) -> str:
    return subprocess.run(
        ["curl", "-s", "-m", "10", *args, f"http://{running.http}{path}"], check=True, capture_output=True, text=True
    ).stdout


def over_http(running: server.Server) -> dict[str, int]:
    """Sends each kind of bad request and returns what must be counted."""
    infer = "/v2/models/simple/infer"
    curl(running, infer, "-d", '{"inputs":[')
    curl(running, infer, "-d", json.dumps(clients.simple_json(inputs=[])))
    curl(running, infer, "-d", " " * 70_000)
    curl(running, infer, "-H", "Content-Encoding: br", "-d", "{}")
    curl(running, "/v2/models/nosuch/infer", "-d", "{}")
    curl(running, "/v2/models/simple/versions/9/infer", "-d", "{}")
    curl(running, "/nosuch")
    curl(running, "/v2/models/simple/config")
    rawhttp.exchange(running.http, b"this is no HTTP\r\n\r\n")
    wrong = [clients.tensor(http_library, n, "FP32", np.ones((1, 16), np.float32)) for n in ("INPUT0", "INPUT1")]
    with http_library.InferenceServerClient(running.http) as client, pytest.raises(InferenceServerException):
        client.infer("simple", wrong)
    return {
        "http simple/1 malformed": 1,
        "http simple/1 bad_input": 2,
        "http simple/1 too_large": 1,
        "http simple/1 unsupported": 1,
        "http simple/1 restricted": 1,
        "http simple/ unknown_model": 1,
        "http / unknown_model": 1,
        "http / unknown_route": 1,
        "http / malformed": 1,
    }


def over_grpc(running: server.Server) -> dict[str, int]:
    def fails(call, *args):
        with pytest.raises(InferenceServerException):
            call(*args)

    good = clients.simple_inputs(grpc_library)
    wrong = [clients.tensor(grpc_library, n, "FP32", np.ones((1, 16), np.float32)) for n in ("INPUT0", "INPUT1")]
    large = [clients.tensor(grpc_library, n, "INT32", np.ones((1000, 16), np.int32)) for n in ("INPUT0", "INPUT1")]
    with grpc_library.InferenceServerClient(running.grpc) as client:
        fails(client.infer, "simple", wrong)
        fails(client.infer, "simple", good[:1])
        fails(client.infer, "simple", large)
        fails(client.infer, "nosuch", good)
        fails(client.infer, "simple", good, "9")
        fails(client.get_model_config, "simple")
        clients.assert_simple(client.infer("simple", good))
    rawhttp.exchange(running.grpc, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    return {
        "grpc simple/1 bad_input": 2,
        "grpc / too_large": 1,
        "grpc / unknown_model": 1,
        "grpc simple/ unknown_model": 1,
        "grpc / restricted": 1,
        "grpc / malformed": 1,
    }


def test_every_kind_is_counted_once_by_model_and_reason(running):
    assert rejected(running) == {}
    want = over_http(running) | over_grpc(running)
    assert rejected(running) == want
    failures = re.findall(r"^nv_inference_request_failure\{.*\} (\d+)$", server.get(running.metrics, "/metrics").text, re.M)
    assert failures and set(failures) == {"0"}, "Triton counts none of these"
    line = running.wait_for_log(r".*request rejected.* reason=unknown_model .*").group()
    assert "protocol=http client=127.0.0.1:" in line and "model=nosuch" in line, line
    assert """answer="Request for unknown model: 'nosuch' is not found""" in line, line


def test_names_that_do_not_exist_make_no_series_and_few_lines(running):
    def series() -> int:
        return len(FAMILY.findall(server.get(running.metrics, "/metrics").text))

    before = series()
    for i in range(200):
        assert server.post(running.http, f"/v2/models/nosuch{i}/infer", "{}").status == 404
    assert series() == before
    assert rejected(running) == {"http / unknown_model": 200}
    running.wait_for_log(r"requests rejected, not logged one by one.* reason=unknown_model count=\d+")
    running.signal()
    assert running.wait() == 0
    logged = len(re.findall(r'msg="request rejected"', running.log))
    left_out = sum(int(n) for n in re.findall(r"not logged one by one\" reason=unknown_model count=(\d+)", running.log))
    assert logged + left_out == 200 and logged < 100, running.log


def test_top_shows_them(running):
    over_http(running)
    command = [str(server.BINARY), "top", "--once", "--json", "--interval", "100ms", running.http]
    command += ["--metrics-url", f"http://{running.metrics}/metrics"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    simple = next(m for m in report["models"] if m["model"] == "simple")
    assert simple["rejected_total"] == 7 and simple["rejected_per_second"] == 0
    assert report["servers"][0]["rejected_total"] == 3
    assert report["total"]["rejected_total"] == 10
