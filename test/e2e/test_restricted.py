"""Restricted APIs: each class of calls over both protocols, with no key, another class's key and its own."""

from __future__ import annotations

import contextlib
import json

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

import clients
import models
import server

INFER = json.dumps(clients.simple_json())
HTTP = {
    "health": ["GET /v2/health/live", "GET /v2/health/ready", "GET /v2/models/simple/ready", "GET /v2/models/simple/versions/1/ready"],
    "metadata": ["GET /v2", "GET /v2/models/simple", "GET /v2/models/simple/versions/1"],
    "inference": ["POST /v2/models/simple/infer", "POST /v2/models/simple/versions/1/infer", "POST /v2/models/simple/generate", "POST /v2/models/simple/generate_stream"],
    "shared-memory": [f"{call} /v2/{kind}sharedmemory{path}" for kind in ("system", "cuda") for call, path in (
        ("GET", "/status"), ("GET", "/region/r/status"), ("POST", "/region/r/register"), ("POST", "/unregister"), ("POST", "/region/r/unregister"),
    )],
    "model-config": ["GET /v2/models/simple/config", "GET /v2/models/simple/versions/1/config"],
    "model-repository": ["POST /v2/repository/index", "POST /v2/repository/models/simple/load", "POST /v2/repository/models/nosuch/unload"],
    "statistics": ["GET /v2/models/stats", "GET /v2/models/simple/stats", "GET /v2/models/simple/versions/1/stats"],
    "trace": ["GET /v2/trace/setting", "POST /v2/trace/setting", "GET /v2/models/simple/trace/setting", "POST /v2/models/simple/trace/setting"],
    "logging": ["GET /v2/logging", "POST /v2/logging"],
}  # fmt: skip
GRPC = {
    "health": ["ServerLive", "ServerReady", "ModelReady"],
    "metadata": ["ServerMetadata", "ModelMetadata"],
    "inference": ["ModelInfer", "ModelStreamInfer"],
    "shared-memory": [f"{kind}SharedMemory{act}" for kind in ("System", "Cuda") for act in ("Status", "Register", "Unregister")],
    "model-config": ["ModelConfig"],
    "model-repository": ["RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"],
    "statistics": ["ModelStatistics"],
    "trace": ["TraceSetting"],
    "logging": ["LogSettings"],
}  # fmt: skip


def other(api: str) -> str:
    names = list(HTTP)
    return names[(names.index(api) + 1) % len(names)]


@pytest.fixture(scope="module")
def restricted(tmp_path_factory):
    """A server whose classes each have a key of their own."""
    repository = models.write(tmp_path_factory.mktemp("repository"), models.simple())
    flags = [f"--http-restricted-api={api}:key-{api}=open" for api in HTTP]
    flags += [f"--grpc-restricted-protocol={api}:key-{api}=open" for api in GRPC]
    with server.Server("--model-repository", repository, "--model-control-mode=explicit", "--load-model=simple", "--allow-client-shm=true", *flags, *server.PORTS, *server.LOOPBACK) as running:
        running.wait_for_log("msg=ready")
        yield running


@pytest.mark.parametrize("api", HTTP)
def test_http_calls_want_the_key_of_their_class(restricted, api):
    want = (403, f"This API is restricted, expecting header 'key-{api}'")
    for call in HTTP[api]:
        method, path = call.split()
        body = INFER if "/infer" in path else "{}" if method == "POST" else None

        def send(headers: dict) -> server.Answer:
            return server.call(restricted.http, method, path, body, headers)

        for headers in ({}, {f"key-{api}": ""}, {f"key-{api}": "opener"}, {f"key-{other(api)}": "open"}):
            answer = send(headers)
            assert (answer.status, clients.error_of(answer)) == want, f"{call} {headers}"
        answer = send({f"key-{api}": "open"})
        assert answer.status not in (403, 405) and answer.text != '{"error":"Not Found"}', f"{call}: {answer.status} {answer.text}"


@pytest.mark.parametrize("api", GRPC)
def test_grpc_calls_want_the_key_of_their_class(restricted, api):
    want = f"This protocol is restricted, expecting header 'triton-grpc-protocol-key-{api}'"
    with grpc.insecure_channel(restricted.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for method in GRPC[api]:

            def send(*metadata: tuple[str, str]) -> tuple[grpc.StatusCode, str]:
                """The status of the call and its text."""
                request = getattr(pb, "ModelInferRequest" if method == "ModelStreamInfer" else f"{method}Request")()
                with contextlib.suppress(AttributeError, ValueError):
                    setattr(request, "model_name" if "Infer" in method or method.startswith("Repository") else "name", "simple")
                if method == "RepositoryModelUnload":
                    request.model_name = "nosuch"
                try:
                    if method == "ModelStreamInfer":
                        for _ in stub.ModelStreamInfer(iter([request]), metadata=metadata, timeout=20):
                            pass
                    else:
                        getattr(stub, method)(request, metadata=metadata, timeout=20)
                except grpc.RpcError as error:
                    return error.code(), error.details()
                return grpc.StatusCode.OK, ""

            key = f"triton-grpc-protocol-key-{api}"
            for metadata in ((), ((key, ""),), ((key, "opener"),), ((f"triton-grpc-protocol-key-{other(api)}", "open"),)):
                assert send(*metadata) == (grpc.StatusCode.UNAVAILABLE, want), f"{method} {metadata}"
            code, text = send((key, "open"))
            assert "restricted" not in text, f"{method}: {code} {text}"


def test_every_call_is_in_the_table():
    service = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert {m.name for m in service.methods} == {m for calls in GRPC.values() for m in calls}
