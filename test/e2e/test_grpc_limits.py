"""What the stock gRPC client meets at the server's limits, and what ends one that attacks."""

from __future__ import annotations

import pathlib
import re
import socket
import time

import grpc
import pytest
import tritonclient.grpc as library
from tritonclient.utils import InferenceServerException

import clients
import models
import server


@pytest.mark.parametrize("text", ["x", "é", "%"], ids=["plain", "two bytes", "per cent"])
def test_a_long_error_text_is_cut_and_the_connection_serves_on(grpc_client, text):
    name = text * 20_000
    for _ in range(20):  # above 8 KB the client refuses some at random
        with pytest.raises(InferenceServerException) as caught:
            grpc_client.get_model_metadata(name)
        assert caught.value.status() == "StatusCode.NOT_FOUND"
        message = caught.value.message()
        assert text * 100 in message and "... (cut, " in message, message
        clients.assert_simple(grpc_client.infer("simple", clients.simple_inputs(library)))


@pytest.fixture
def few_files(serve):
    """A server that may open 256 files."""
    shell = ("-c", 'ulimit -n 256; exec "$0" "$@"', str(server.BINARY), "serve")
    return serve(wanted=(models.simple(),), binary=pathlib.Path("/bin/bash"), command=shell).wait_ready()


def test_idle_connections_do_not_silence_the_server(few_files):
    assert re.search(r"ulimit -n", few_files.log), few_files.log
    idle = []
    try:
        for address in (few_files.http, few_files.grpc, few_files.metrics):
            host, port = address.rsplit(":", 1)
            idle += [socket.create_connection((host, int(port)), timeout=5) for _ in range(300)]
        for _ in range(5):
            begin = time.monotonic()
            assert server.get(few_files.http, "/v2/health/ready").status == 200
            text = server.get(few_files.metrics, "/metrics").text
            with library.InferenceServerClient(few_files.grpc) as client:
                assert client.is_server_ready(client_timeout=5)
                clients.assert_simple(client.infer("simple", clients.simple_inputs(library)))
            assert time.monotonic() - begin < 5
        for protocol in ("http", "grpc"):
            line = rf'shoal_connections_closed_total{{protocol="{protocol}",reason="evicted"}} ([1-9]\d*)'
            assert re.search(line, text), text
    finally:
        for connection in idle:
            connection.close()


def test_a_busy_client_never_meets_the_limits_of_work(grpc_client, target):
    """Pings and window updates of the stock client, with many small and some large requests on one connection."""
    for _ in range(2000):
        grpc_client.infer("simple", clients.simple_inputs(library))
    with grpc.insecure_channel(target.grpc) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        for call in [live.future(b"") for _ in range(3000)]:
            call.result(timeout=30)
    text = server.get(target.metrics, "/metrics").text
    assert re.search(r'shoal_connections_closed_total\{protocol="grpc",reason="too_much_work"\} 0', text), text
