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


def exchange(address: str, case: dict) -> tuple[str, dict[str, str], bytes, bool]:
    """Sends a request as it was recorded; returns the status line, headers, body and whether the server closed."""
    request = case["request"]
    head, _, text = request.partition("\r\n\r\n" if "\r\n" in request else "\n\n")
    body = text.encode("latin-1")
    lines = re.split("\r?\n", head.rstrip("\r\n"))
    if "multipart" in head and "\r\n" not in text:
        body = body.replace(b"\n", b"\r\n")
    for i, line in enumerate(lines):
        if line.lower().startswith("content-length:") and not any("100-continue" in other for other in lines):
            size = int(line.split(":")[1])
            body = (body + b"\n" * size)[:size]
    with connect(address) as s:
        s.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        with s.makefile("rb") as answer:
            status, headers = read_head(answer)
            if status == "HTTP/1.1 100 Continue":
                status, headers = read_head(answer)
            content = b"" if request.startswith("HEAD") else answer.read(int(headers["content-length"]))
            closed = headers.get("connection") == "close"
            if closed:
                assert answer.read(1) == b"", f"the server says that it closes and does not: {status}"
    return status, headers, content, closed


def connect(address: str) -> socket.socket:
    if address.startswith("/"):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(20)
        s.connect(address)
        return s
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 20)


def read_head(answer) -> tuple[str, dict[str, str]]:
    status = answer.readline().decode("latin-1").rstrip("\r\n")
    headers = {}
    while line := answer.readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return status, headers


def same(body: str) -> object:
    """The body without what changes from run to run; of an error the text; of an API's description what programs read."""
    for pattern, to in CHANGING:
        body = re.sub(pattern, to, body)
    try:
        value = json.loads(body)
    except ValueError:
        return body
    if not isinstance(value, dict) or "openapi" not in value:
        return value
    paths = {
        (path, method): (op["operationId"], [p["name"] for p in op.get("parameters", ())], sorted(op["responses"]))
        for path, methods in value["paths"].items()
        for method, op in methods.items()
    }
    return value["openapi"], value["info"]["title"], paths


# Where Shoal does better, or says more.
BETTER = {
    "conn_close": {"closed": True},
    "http10": {"closed": True, "status": "HTTP/1.0 200 OK"},
    "http10_keepalive": {"status": "HTTP/1.0 200 OK"},
    "oversize_expect": {"closed": True},  # whoever sends the body without waiting would begin a request with it
    "bad_json": {"status": "HTTP/1.1 200 ", "type": None, "closed": False, "body": "ok"},  # the originals' worker dies, or their handler
    "empty_json": {"status": "HTTP/1.1 200 ", "type": None, "closed": False, "body": "ok"},
}  # fmt: skip

OPEN = ("--disable-token-auth", "--enable-model-api")
CORS = "cors_allowed_origin=*\ncors_allowed_methods=GET, POST, PUT, OPTIONS\ncors_allowed_headers=X-Custom\n"

# The file with the recorded answers: how the server is started.
SERVERS = {
    "mms": (["--models", "mlp=mlp.mar"], ""),
    "torchserve": (["--models", "mlp=mlp.mar", *OPEN], ""),
    "mms_shared": (["--models", "mlp.mar", "second=ok.mar"], CORS + "max_request_size=1000\ndefault_workers_per_model=1\n"),
    "torchserve_tokens": (["--models", "ctx.mar"], "default_workers_per_model=1\n"),
    "torchserve_kserve": (["--models", "ctx.mar", "--disable-token-auth"], "default_workers_per_model=1\nservice_envelope=kserve\nts_open_inference_protocol=true\n"),
    "torchserve_kservev2": (["--models", "ctx.mar", "--disable-token-auth"], "default_workers_per_model=1\nservice_envelope=kservev2\nts_open_inference_protocol=true\n"),
}  # fmt: skip


@pytest.mark.parametrize("recorded", SERVERS)
def test_answers_are_those_of_the_real_server(recorded, tmp_path):
    dialect = recorded.split("_")[0]
    store = archives.write(tmp_path, dialect)
    args, config = SERVERS[recorded]
    shared = str(tmp_path / "shared.sock")
    if recorded == "mms_shared":
        config += f"inference_address=unix:{shared}\nmanagement_address=unix:{shared}\n"
    with archives.server(tmp_path, dialect, "--model-store", store, *args, config=config) as server:
        server.wait_for_log("Model server started.")
        differences = []
        cases = json.loads((RECORDED / f"{recorded}.json").read_text())
        keys: dict[str, str] = {}
        for case in cases:
            case.update(BETTER.get(case["name"], {}))
            if "-key>" in case["request"] and case["name"] != "token_old_key":
                keys = {k: v["key"] for k, v in json.loads((tmp_path / "key_file.json").read_text()).items()}
            for field in ("request", "body"):
                case[field] = case[field] and case[field].replace("/srv/mms/store", str(store))
            for kind, key in keys.items():
                case["request"] = case["request"].replace(f"<{kind}-key>", key)
                case["body"] = (case["body"] or "").replace(f"<{kind}-key>", key)
            address = shared if recorded == "mms_shared" else server.address(PORTS[case["port"]])
            status, headers, body, closed = exchange(address, case)
            extra = {k: headers.get(k) for k in case.get("headers", ())}
            text = None if case["body"] is None else same(body.decode("latin-1"))
            got = (status, headers.get("content-type"), closed, extra, text)
            want = (case["status"], case["type"], case["closed"], case.get("headers", {}), case["body"] if case["body"] is None else same(case["body"]))
            if got != want:
                differences.append(f"{case['name']}: {case['request'].splitlines()[0][:200]}\n  got  {str(got)[:1500]}\n  want {str(want)[:1500]}")
            if not status.startswith("HTTP/1.1 413"):  # which has no header but one
                for name in ("x-request-id", "pragma", "cache-control", "expires"):
                    assert name in headers, f"{case['name']}: no {name} in {headers}"
        assert not differences, f"{len(differences)} of {len(cases)} differ:\n" + "\n".join(differences)
