"""Multi Model Server and TorchServe: requests with the answers that the real servers gave (testdata/modelserver)."""

from __future__ import annotations

import json
import pathlib
import re
import socket

import pytest

import archives

RECORDED = pathlib.Path(__file__).parent / "testdata" / "modelserver"
PORTS = {8080: "inference", 8081: "management", 8082: "model_metrics"}

CHANGING = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r'"model_dir": "[^"]*"', '"model_dir": "D"'),
    (r'"id": "9\d+[^"]*"', '"id": "I"'),
    (r'"startTime": "\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"', '"startTime": "T"'),
    (r'"(memoryUsage|pid)": \d+', r'"\1": 0'),
    (r"127\.0\.0\.1:\d+", "H"),
    (r'"createdOn": "[^"]*"', '"createdOn": "C"'),
]


def exchange(address: str, request: str) -> tuple[str, dict[str, str], bytes, bool]:
    """Sends a request as it was recorded; returns the status line, headers, body and whether the server closed."""
    head, _, text = request.partition("\n\n")
    body = text.encode("latin-1")
    lines = head.rstrip("\n").split("\n")
    if "multipart" in head:
        body = body.replace(b"\n", b"\r\n")
    for i, line in enumerate(lines):
        if line.lower().startswith("content-length:"):
            size = int(line.split(":")[1])
            body = (body + b"\n" * size)[:size]
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 20) as s:
        s.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        with s.makefile("rb") as answer:
            status = answer.readline().decode("latin-1").rstrip("\r\n")
            headers = {}
            while line := answer.readline().decode("latin-1").strip():
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            content = b"" if request.startswith("HEAD") else answer.read(int(headers["content-length"]))
            closed = headers["connection"] == "close"
            if closed:
                assert answer.read(1) == b"", f"the server says that it closes and does not: {status}"
    return status, headers, content, closed


def same(body: str) -> object:
    """The body without what changes from run to run."""
    for pattern, to in CHANGING:
        body = re.sub(pattern, to, body)
    try:
        return json.loads(body)
    except ValueError:
        return body


@pytest.mark.parametrize("dialect", ["mms", "torchserve"])
def test_answers_are_those_of_the_real_server(dialect, tmp_path):
    store = archives.write(tmp_path, dialect)
    more = ("--disable-token-auth", "--enable-model-api") if dialect == "torchserve" else ()
    with archives.server(tmp_path, dialect, "--model-store", store, "--models", "mlp=mlp.mar", *more) as server:
        server.wait_for_log("Model server started.")
        differences = []
        cases = json.loads((RECORDED / f"{dialect}.json").read_text())
        for case in cases:
            status, headers, body, closed = exchange(server.address(PORTS[case["port"]]), case["request"])
            got = (status, headers.get("content-type"), closed, same(body.decode("latin-1")))
            want = (case["status"], case["type"], case["closed"], same(case["body"]))
            if got != want:
                differences.append(f"{case['name']}: {case['request'].splitlines()[0]}\n  got  {got}\n  want {want}")
            for name in ("x-request-id", "pragma", "cache-control", "expires"):
                assert name in headers, f"{case['name']}: no {name} in {headers}"
        assert not differences, f"{len(differences)} of {len(cases)} differ:\n" + "\n".join(differences)
