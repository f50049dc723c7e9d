"""generate and generate_stream: JSON in, JSON or events out, for any model."""

from __future__ import annotations

import http.client
import json
import socket

import pytest

import test_decoupled as decoupled
from server import LOOPBACK, PORTS, Server, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    with Server("--model-repository", decoupled.write(tmp_path_factory.mktemp("generate")), *PORTS, *LOOPBACK) as started:
        started.wait_ready()
        yield started
        assert started.process.poll() is None, f"the server died:\n{started.log}"


def post(server: Server, path: str, body: object) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(server.http, timeout=20)
    connection.request("POST", f"/v2/models/{path}", json.dumps(body))
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, reply.headers["Content-Type"], text


def events(text: str) -> list[dict]:
    assert text == "" or text.endswith("\n\n")
    lines = [line for line in text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines), text
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_an_ordinary_model_answers_once(server: Server):
    status, kind, text = post(server, "ordinary/generate", {"INPUT0": [1, 2, 3], "id": "x", "temperature": 0.5})
    assert (status, kind) == (200, "application/json")
    got = json.loads(text)
    assert got["OUTPUT0"] == [1, 2, 3]
    assert got["id"] == "x"
    assert list(got) == sorted(got)
    status, kind, text = post(server, "ordinary/generate_stream", {"INPUT0": 7})
    assert (status, kind) == (200, "text/event-stream; charset=utf-8")
    assert [e["OUTPUT0"] for e in events(text)] == [7]


def test_a_decoupled_model_streams_events(server: Server):
    status, kind, text = post(server, "repeat/generate_stream", {"IN": [4, 5, 6], "DELAY": [0, 0, 0], "WAIT": 0})
    assert (status, kind) == (200, "text/event-stream; charset=utf-8")
    assert [(e["OUT"], e["IDX"]) for e in events(text)] == [(4, 0), (5, 1), (6, 2)]
    assert events(text)[0] == {"IDX": 0, "OUT": 4, "model_name": "repeat", "model_version": "1"}
    assert post(server, "square/generate_stream", {"IN": 0}) == (200, "text/event-stream; charset=utf-8", "")


def test_generate_wants_exactly_one_response(server: Server):
    assert post(server, "square/generate", {"IN": 1})[0] == 200
    for n in (0, 2):
        status, _, text = post(server, "square/generate", {"IN": n})
        assert status == 500
        assert json.loads(text)["error"].startswith("generate expects model to produce exactly 1 response")


def test_errors(server: Server):
    assert post(server, "repeat/generate_stream", {"IN": [1, 2], "DELAY": 0, "WAIT": 0}) == (
        400,
        "text/event-stream; charset=utf-8",
        'data: {"error":"expected IN and DELAY shape to match, got [2] and [1]"}\n\n',
    )
    assert events(post(server, "square_faults/generate_stream", {"IN": 5})[2]) == [
        *[{"OUT": 5, "model_name": "square_faults", "model_version": "1"}] * 2,
        *[{"error": "simulated failure"}] * 2,
    ]
    assert post(server, "square/generate", {"IN": [1, 2]}) == (
        400,
        "application/json",
        '{"error":"The schema can not convert input \'IN\' to tensor with proper shape"}',
    )
    assert post(server, "square/generate_stream", {"IN": "x"})[0] == 500
    assert post(server, "nosuch/generate_stream", {})[0] == 404


def test_events_arrive_one_by_one_and_hanging_up_stops_the_model(server: Server):
    before = decoupled.statistics(server, "repeat")["inference_stats"]["fail"]["count"]
    host, port = server.http.rsplit(":", 1)
    body = json.dumps({"IN": list(range(1000)), "DELAY": [20] * 1000, "WAIT": 0}).encode()
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(b"POST /v2/models/repeat/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        got = b""
        while got.count(b"data: ") < 3:
            got += client.recv(4096)
    wait_until(lambda: decoupled.statistics(server, "repeat")["inference_stats"]["fail"]["count"] == before + 1, 5, "the request to end")
