"""A client that closes its own direction after a request gets its answer; one that is gone frees its place in the queue."""

from __future__ import annotations

import http.client
import json
import re
import socket

import pytest

import models
import rawhttp
import server
import test_decoupled as decoupled

BODY = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]}).encode()


def pending(running: server.Server, model: str) -> int:
    text = server.get(running.metrics, "/metrics").text
    return int(re.search(rf'nv_inference_pending_request_count\{{model="{model}",version="1"\}} (\d+)', text).group(1))


def busy(running: server.Server) -> bool:
    return 'shoal_instances_busy{model="long",version="1"} 1' in server.get(running.metrics, "/metrics").text


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    path = models.write(tmp_path_factory.mktemp("repository"), models.slow("slow", 500), models.slow("fast", 0), models.slow("long", 4000))
    with server.Server("--model-repository", path, *server.PORTS, *server.LOOPBACK) as started:
        yield started.wait_ready()


def send(address: str, model: str) -> socket.socket:
    sock = rawhttp.connect(address)
    sock.sendall(rawhttp.request(f"/v2/models/{model}/infer", BODY))
    sock.shutdown(socket.SHUT_WR)
    return sock


@pytest.mark.parametrize("model", ["slow", "fast"])
def test_a_request_is_answered_though_its_client_sends_no_more(running, model):
    with send(running.http, model) as sock:
        reply = rawhttp.read_reply(sock, 0)
    assert reply.status == 200 and json.loads(reply.body)["outputs"][0]["data"] == [1], reply


def test_so_is_one_that_waits_in_the_queue(running):
    socks = [send(running.http, "slow") for _ in range(3)]
    for sock in socks:
        with sock, sock.makefile("rb") as file:
            answer = http.client.HTTPResponse(sock)  # the standard library's own client ignores interim answers
            answer.fp = file
            answer.begin()
            assert answer.status == 200


def test_a_client_that_is_gone_frees_its_place(running):
    with send(running.http, "long") as first:
        server.wait_until(lambda: busy(running), 2, "the first request to run")
        second, third = send(running.http, "long"), rawhttp.connect(running.http)
        third.sendall(rawhttp.request("/v2/models/long/infer", BODY))
        server.wait_until(lambda: pending(running, "long") == 2, 2, "two requests to wait")
        second.close()
        third.close()
        server.wait_until(lambda: pending(running, "long") == 0, 1.9, "both to be withdrawn while the first one runs")
        assert rawhttp.read_reply(first, 0).status == 200


def test_events_go_on_for_a_client_that_sends_no_more(tmp_path):
    with server.Server("--model-repository", decoupled.write(tmp_path), *server.PORTS, *server.LOOPBACK) as running:
        running.wait_ready()
        body = json.dumps({"IN": list(range(20)), "DELAY": [20] * 20, "WAIT": 0}).encode()
        with rawhttp.connect(running.http) as sock:
            sock.sendall(rawhttp.request("/v2/models/repeat/generate_stream", body))
            got = b""
            while got.count(b"data: ") < 3:
                got += sock.recv(4096)
            sock.shutdown(socket.SHUT_WR)
            while more := sock.recv(4096):
                got += more
        assert got.count(b"data: ") == 20
