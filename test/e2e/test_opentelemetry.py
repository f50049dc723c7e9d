"""Traces as OpenTelemetry's spans, sent to a receiver that decodes what a collector would."""

from __future__ import annotations

import collections
import concurrent.futures
import http.server
import json
import os
import re
import socket
import subprocess
import threading

import numpy as np
import pytest

import clients
import models
import pymodels
import server
import stage
from test_trace import ECHO, ROW, ask, context_of, stop, with_calling, with_ensemble

try:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
except ImportError:
    assert "CI" not in os.environ, "opentelemetry-proto is not installed"
    pytest.skip("opentelemetry-proto is not installed", allow_module_level=True)

CALLER = "00-0af7651916cd43dd8448eb211c12666c-b7ad6b7169242424-01"
PAIR = models.with_extra(models.slow("pair", 0, max_batch_size=8), stage.batching("max_queue_delay_microseconds: 20000000", "preferred_batch_size: [ 2 ]"))


class Receiver(http.server.ThreadingHTTPServer):
    """Keeps the spans that are sent to it."""

    def __init__(self):
        self.requests: list[ExportTraceServiceRequest] = []
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def flags(self) -> list[str]:
        url = f"opentelemetry,url=http://127.0.0.1:{self.server_port}/v1/traces"
        return [f"--trace-config={f}" for f in ("mode=opentelemetry", url, "level=TIMESTAMPS", "rate=1")]

    @property
    def spans(self) -> list:
        return [span for request in self.requests for of in request.resource_spans for scope in of.scope_spans for span in scope.spans]

    def named(self) -> dict[str, list]:
        found = collections.defaultdict(list)
        for span in self.spans:
            found[span.name].append(span)
        return found


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
        self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver():
    with Receiver() as running:
        yield running
        running.shutdown()


def attributes(of) -> dict:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in of.attributes}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_spans_continue_the_callers_trace(serve, receiver, protocol):
    more = ("opentelemetry,resource=service.name=mine", "opentelemetry,resource=zone=a")
    running = serve(*receiver.flags, *(f"--trace-config={f}" for f in more), wanted=(ECHO,)).wait_ready()
    ask(running, protocol, headers={"traceparent": CALLER, "tracestate": "a=b"}, request_id="r1")
    ask(running, protocol)
    assert stop(running) == 0
    assert {name: len(spans) for name, spans in receiver.named().items()} == {"InferRequest": 2, "m": 2, "queue": 2, "compute": 2}
    mine = {s.name: s for s in receiver.spans if s.trace_id.hex() == CALLER.split("-")[1]}
    assert {name: s.parent_span_id.hex() for name, s in mine.items()} == {
        "InferRequest": CALLER.split("-")[2],
        "m": mine["InferRequest"].span_id.hex(),
        "queue": mine["m"].span_id.hex(),
        "compute": mine["m"].span_id.hex(),
    }
    assert mine["InferRequest"].kind == 2 and mine["InferRequest"].trace_state == "a=b"  # a server's span
    wire = {"http": ["HTTP_RECV_START", "HTTP_RECV_END", "HTTP_SEND_START", "HTTP_SEND_END"]}.get(
        protocol, ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "GRPC_SEND_START", "GRPC_SEND_END"]
    )
    assert [e.name for e in mine["InferRequest"].events] == [*wire[:2], "INFER_RESPONSE_COMPLETE", *wire[2:]]
    assert [e.name for e in mine["m"].events] == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
    assert [e.name for e in mine["compute"].events] == ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]
    assert attributes(mine["m"]) == {
        "triton.model_name": "m",
        "triton.model_version": 1,
        "triton.trace_id": 1,
        "triton.trace_parent_id": 0,
        "triton.request_id": "r1",
    }
    for name, inside in (("InferRequest", "m"), ("m", "queue"), ("m", "compute")):
        outer, inner = mine[name], mine[inside]
        assert outer.start_time_unix_nano <= inner.start_time_unix_nano <= inner.end_time_unix_nano <= outer.end_time_unix_nano
    resource = attributes(receiver.requests[0].resource_spans[0].resource)
    assert resource["service.name"] == "mine" and resource["zone"] == "a"


def test_only_callers_that_trace_are_traced_with_a_rate_of_zero(serve, receiver):
    running = serve(*receiver.flags, "--trace-config=rate=0", wanted=(ECHO,)).wait_ready()
    for headers in ({}, {"traceparent": CALLER[:-1] + "0"}, {"traceparent": "nonsense"}, {"traceparent": CALLER}):
        ask(running, "http", headers=headers)
    assert stop(running) == 0
    assert [s.trace_id.hex() for s in receiver.named()["InferRequest"]] == [CALLER.split("-")[1]]


def test_a_batch_links_to_its_requests(serve, receiver):
    running = serve(*receiver.flags, wanted=(PAIR,)).wait_ready()

    def send(protocol: str) -> None:
        library = clients.LIBRARIES[protocol]
        with library.InferenceServerClient(getattr(running, protocol)) as client:
            client.infer("pair", [clients.tensor(library, "INPUT0", "FP32", np.ones((1, 4), np.float32))])

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(send, ("http", "grpc")))
    assert stop(running) == 0
    named = receiver.named()
    (batch,) = named["batch"]
    assert {link.span_id for link in batch.links} == {s.span_id for s in named["pair"]} and len(batch.links) == 2
    assert {link.span_id for s in named["compute"] for link in s.links} == {batch.span_id}
    assert {k: v for k, v in attributes(batch).items() if k.startswith("shoal.")} == {
        "shoal.batch.requests": 2,
        "shoal.batch.rows": 2,
        "shoal.batch.reason": "preferred",
    }
    assert not batch.parent_span_id and len({s.trace_id for s in receiver.spans}) == 3


def test_the_steps_of_an_ensemble_are_within_its_span(serve, repository, receiver):
    running = serve("--model-repository", with_ensemble(repository), *receiver.flags).wait_ready()
    library = clients.LIBRARIES["http"]
    with library.InferenceServerClient(running.http) as client:
        client.infer("twice", [clients.tensor(library, "IN", "FP32", ROW)])
    assert stop(running) == 0
    named = receiver.named()
    assert {name: len(spans) for name, spans in named.items()} == {"InferRequest": 1, "twice": 1, "m": 2, "queue": 3, "compute": 2}
    assert {s.parent_span_id for s in named["m"]} == {named["twice"][0].span_id}
    assert {s.parent_span_id for s in named["compute"]} == {s.span_id for s in named["m"]}


def test_a_python_model_can_continue_its_trace(serve, repository, receiver):
    running = serve("--model-repository", with_calling(repository), pymodels.PYTHON, *receiver.flags).wait_ready()
    context = json.loads(context_of(running))
    assert stop(running) == 0
    named = receiver.named()
    (own,) = named["calling"]
    assert context == {"traceparent": f"00-{own.trace_id.hex()}-{own.span_id.hex()}-01"}
    assert [s.parent_span_id for s in named["m"]] == [own.span_id]


def test_without_a_receiver_requests_are_answered_and_spans_counted(serve):
    with socket.socket() as held:  # its port is taken, and nobody listens there
        held.bind(("127.0.0.1", 0))
        url = f"opentelemetry,url=127.0.0.1:{held.getsockname()[1]}"
        flags = ("mode=opentelemetry", url, "opentelemetry,bsp_schedule_delay=1", "level=TIMESTAMPS", "rate=1")
        running = serve(*(f"--trace-config={f}" for f in flags), wanted=(ECHO,)).wait_ready()

        def dropped() -> float:
            lines = server.get(running.metrics, "/metrics").text.splitlines()
            return next(float(line.split()[1]) for line in lines if line.startswith("shoal_traces_dropped_total "))

        for _ in range(3):
            before = dropped()
            ask(running, "http", 5)
            server.wait_until(lambda: dropped() >= before + 20, 20, "20 spans to be dropped")
        assert stop(running) == 0
    assert running.log.count("the receiver of traces does not take them") == 1


def test_a_real_collector_takes_the_spans(serve, tmp_path):
    binary = os.environ.get("OTEL_COLLECTOR")
    if not binary:
        pytest.skip("OTEL_COLLECTOR does not name a collector of OpenTelemetry (with the receiver otlp and the exporter debug)")
    address = f"127.0.0.1:{server.free_port()}"
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": address}}}},
        "exporters": {"debug": {"verbosity": "detailed"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["debug"]}},
        },
    }
    path, log = tmp_path / "collector.yaml", tmp_path / "collector.log"
    path.write_text(json.dumps(config))  # YAML, too
    with log.open("w") as output, subprocess.Popen([binary, "--config", f"file:{path}"], stderr=output, stdout=output) as collector:
        try:
            server.wait_until(lambda: "Everything is ready" in log.read_text(errors="replace"), 20, "the collector")
            flags = ("mode=opentelemetry", f"opentelemetry,url=http://{address}/v1/traces", "level=TIMESTAMPS", "rate=1")
            running = serve(*(f"--trace-config={f}" for f in flags), wanted=(ECHO,)).wait_ready()
            ask(running, "http", headers={"traceparent": CALLER})
            assert stop(running) == 0
            _, trace, parent, _ = CALLER.split("-")
            first = re.compile(rf"Trace ID +: {trace}\n +Parent ID +: {parent}\n.*\n +Name +: InferRequest\n")
            server.wait_until(lambda: first.search(log.read_text(errors="replace")), 20, "the request's span")
            for name in ("m", "queue", "compute"):
                assert re.search(rf"Trace ID +: {trace}\n.*\n.*\n +Name +: {name}\n", log.read_text(errors="replace")), name
        finally:
            collector.terminate()
