"""Tensors in shared memory: tritonclient's own module over both protocols, and all that can be wrong, in Triton's words.

The words and codes of the refusals were recorded from a real tritonserver 2.51.
"""

import base64
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import uuid

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException, serialize_byte_tensor
from tritonclient.utils import shared_memory as shm

import models
from server import LOOPBACK, PORTS, Server, wait_until

LONG = models.slow("slow", 300)


class Place:
    """A server that takes shared memory, and its clients."""

    def __init__(self, server):
        self.server = server
        self.http = tritonclient.http.InferenceServerClient(server.http)
        self.grpc = tritonclient.grpc.InferenceServerClient(server.grpc)
        self.stub = self.grpc._client_stub  # noqa: SLF001 - raw messages, as a bad client sends them

    def api(self, protocol: str):
        module = {"http": tritonclient.http, "grpc": tritonclient.grpc}[protocol]
        return getattr(self, protocol), module


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    repository = models.write(tmp_path_factory.mktemp("repository"), models.simple(), models.identity("BYTES", "text", dims=(-1,)), LONG)
    with Server("--model-repository", repository, "--allow-client-shm=true", "--client-shm-max-regions=50", *PORTS, *LOOPBACK) as server:
        server.wait_ready()
        yield Place(server)
        assert server.process.poll() is None, f"the server died:\n{server.log}"


@pytest.fixture
def memory(place):
    """A function that makes named memory; it is removed, and all regions unregistered, after the test."""
    made = []

    def make(size: int, content: bytes = b"") -> str:
        key = f"/shoal_e2e_{uuid.uuid4().hex}"
        path = pathlib.Path("/dev/shm" + key)
        path.write_bytes(content.ljust(size, b"\0"))
        made.append(path)
        return key

    yield make
    place.http.unregister_system_shared_memory()
    for path in made:
        path.unlink(missing_ok=True)


def call(address: str, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
    """One request over HTTP; returns the status and the body."""
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def open_files(place, key: str) -> int:
    """How many times the server has the memory open."""
    found = 0
    for link in pathlib.Path(f"/proc/{place.server.process.pid}/fd").iterdir():
        try:
            found += os.readlink(link).startswith("/dev/shm" + key)
        except FileNotFoundError:
            pass  # closed meanwhile
    return found


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_inputs_and_outputs_in_shared_memory(place, protocol):
    client, module = place.api(protocol)
    a, b = np.arange(16, dtype=np.int32), np.full(16, 3, np.int32)
    name = f"shoal_e2e_{uuid.uuid4().hex}"
    inputs, outputs = shm.create_shared_memory_region("in", "/" + name + "_in", 128), shm.create_shared_memory_region("out", "/" + name + "_out", 128)
    try:
        shm.set_shared_memory_region(inputs, [a, b])
        client.register_system_shared_memory("in", "/" + name + "_in", 128)
        client.register_system_shared_memory("out", "/" + name + "_out", 128)
        wanted = []
        given = []
        for i in range(2):
            t = module.InferInput(f"INPUT{i}", [1, 16], "INT32")
            t.set_shared_memory("in", 64, offset=64 * i)
            given.append(t)
            o = module.InferRequestedOutput(f"OUTPUT{i}") if protocol == "grpc" else module.InferRequestedOutput(f"OUTPUT{i}", binary_data=True)
            o.set_shared_memory("out", 64, offset=64 * i)
            wanted.append(o)
        for _ in range(3):
            result = client.infer("simple", given, outputs=wanted)
        assert "'data'" not in str(result.get_response()), "the answer carries what is in shared memory"
        assert (shm.get_contents_as_numpy(outputs, np.int32, [16]) == a + b).all()
        assert (shm.get_contents_as_numpy(outputs, np.int32, [16], 64) == a - b).all()
        # One output in memory, the other in the answer.
        result = client.infer("simple", given, outputs=[wanted[0], module.InferRequestedOutput("OUTPUT1")])
        assert (result.as_numpy("OUTPUT1").ravel() == a - b).all()
        status = client.get_system_shared_memory_status(**({"as_json": True} if protocol == "grpc" else {}))
        regions = status["regions"] if protocol == "grpc" else {g["name"]: g for g in status}
        assert set(regions) == {"in", "out"}
        assert regions["in"]["key"] == f"/{name}_in" and int(regions["in"]["byte_size"]) == 128
    finally:
        client.unregister_system_shared_memory()
        shm.destroy_shared_memory_region(inputs)
        shm.destroy_shared_memory_region(outputs)


def test_metadata_names_the_extension(place):
    assert "system_shared_memory" in place.http.get_server_metadata()["extensions"]
    assert "system_shared_memory" in place.grpc.get_server_metadata().extensions


def test_off_unless_asked_for(serve):
    server = serve(wanted=(models.simple(),))
    server.wait_ready()
    client = tritonclient.http.InferenceServerClient(server.http)
    assert "system_shared_memory" not in client.get_server_metadata()["extensions"]
    for call in (client.get_system_shared_memory_status, client.unregister_cuda_shared_memory, lambda: client.register_system_shared_memory("a", "/a", 1)):
        with pytest.raises(InferenceServerException, match="--allow-client-shm=true") as caught:
            call()
        assert caught.value.status() == "501"


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_strings_in_shared_memory(place, memory, protocol):
    client, module = place.api(protocol)
    content = serialize_byte_tensor(np.array(["süß", "", "x" * 300], dtype=np.object_)).item()
    client.register_system_shared_memory("s", memory(1024, content), 1024)
    key = memory(1024)
    client.register_system_shared_memory("t", key, 1024)
    t = module.InferInput("INPUT0", [3], "BYTES")
    t.set_shared_memory("s", len(content))
    o = module.InferRequestedOutput("OUTPUT0")
    o.set_shared_memory("t", 1024)
    client.infer("text", [t], outputs=[o])
    assert pathlib.Path("/dev/shm" + key).read_bytes()[: len(content)] == content
    # Lengths that run past the end are the client's fault, and only that.
    t.set_shared_memory("s", len(content) - 1)
    with pytest.raises(InferenceServerException):
        client.infer("text", [t], outputs=[o])


REFUSED = [
    # what is registered, the HTTP status, the words
    ({}, 400, "Shared memory register request has no 'key' field"),
    ({"key": "K"}, 400, "Shared memory register request has no 'byte_size' field"),
    ({"key": "K", "byte_size": "64"}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
    ({"key": "K", "byte_size": -1}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
    ({"key": 5, "byte_size": 64}, 500, "attempt to access JSON non-string as string"),
    ({"key": "K", "offset": "x", "byte_size": 64}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
    ({"key": "K", "offset": 100, "byte_size": 64}, 400, "failed to register shared memory region 'a': invalid args"),
    ({"key": "K", "offset": 2**64 - 16, "byte_size": 64}, 400, "failed to register shared memory region 'a'"),
    ({"key": "K", "byte_size": 0}, 400, "failed to register shared memory region 'a'"),
    ({"key": "", "byte_size": 64}, 500, "Unable to open shared memory region: ''"),
    ({"key": "/", "byte_size": 64}, 500, "Unable to open shared memory region: '/'"),
    ({"key": "/../../etc/passwd", "byte_size": 64}, 500, "Unable to open shared memory region: '/../../etc/passwd'"),
    ({"key": "/no/such", "byte_size": 64}, 500, "Unable to open shared memory region: '/no/such'"),
    ({"key": "/" + "x" * 300, "byte_size": 64}, 500, "Unable to open shared memory region: '/xxx"),
    ("{", 500, "failed to parse the request JSON buffer: Missing a name for object member. at 1"),
    ("", 500, "failed to parse the request JSON buffer: The document is empty. at 0"),
    ("[]", 400, "Shared memory register request has no 'key' field"),
]


@pytest.mark.parametrize(("body", "status", "words"), REFUSED, ids=lambda v: json.dumps(v)[:60])
def test_bad_registrations_over_http(place, memory, body, status, words):
    if isinstance(body, dict) and body.get("key") == "K":
        body = {**body, "key": memory(128)}
    text = body if isinstance(body, str) else json.dumps(body)
    got, answer = call(place.server.http, "POST", "/v2/systemsharedmemory/region/a/register", text.encode())
    assert (got, words in answer) == (status, True), answer


@pytest.mark.parametrize(("method", "path", "status", "words"), [
    ("POST", "/v2/systemsharedmemory/register", 400, "'region name' is necessary to register system shared memory region"),
    ("POST", "/v2/cudasharedmemory/register", 400, "'region name' is necessary to register cuda shared memory region"),
    ("POST", "/v2/systemsharedmemory/region//register", 404, "Not Found"),
    ("GET", "/v2/systemsharedmemory/region/a/register", 405, "Method Not Allowed"),
    ("POST", "/v2/systemsharedmemory/status", 405, "Method Not Allowed"),
    ("GET", "/v2/systemsharedmemory", 404, "Not Found"),
    ("GET", "/v2/systemsharedmemory/region/a", 404, "Not Found"),
    ("GET", "/v2/systemsharedmemory/region/none/status", 404, "Unable to find system shared memory region: 'none'"),
    ("GET", "/v2/cudasharedmemory/region/none/status", 404, "Unable to find cuda shared memory region: 'none'"),
    ("GET", "/v2/systemsharedmemory/status", 200, "[]"),
    ("GET", "/v2/cudasharedmemory/status", 200, "[]"),
    ("POST", "/v2/systemsharedmemory/region/none/unregister", 200, ""),
    ("POST", "/v2/systemsharedmemory/unregister", 200, ""),
    ("POST", "/v2/cudasharedmemory/region/none/unregister", 200, ""),
    ("POST", "/v2/cudasharedmemory/unregister", 200, ""),
])  # fmt: skip
def test_paths_over_http(place, method, path, status, words):
    got, answer = call(place.server.http, method, path)
    assert (got, words in answer) == (status, True), answer


def test_cuda_memory_is_refused(place):
    handle = base64.b64encode(b"\1" * 64).decode()
    whole = {"raw_handle": {"b64": handle}, "device_id": 0, "byte_size": 64}
    for body, status, words in (
        (whole, 400, "failed to register CUDA shared memory region: 'g', GPUs not supported"),
        ({**whole, "raw_handle": {"b64": "AAAA"}}, 400, "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"),
        ({**whole, "raw_handle": {}}, 500, "attempt to access non-existing object member 'b64'"),
        ({"raw_handle": {"b64": handle}, "byte_size": 64}, 500, "attempt to access non-existing object member 'device_id'"),
        ({}, 400, "Shared memory register request has no 'raw_handle' field"),
    ):
        got, answer = call(place.server.http, "POST", "/v2/cudasharedmemory/region/g/register", json.dumps(body).encode())
        assert (got, words in answer) == (status, True), answer
    with pytest.raises(InferenceServerException, match="GPUs not supported") as caught:
        place.grpc.register_cuda_shared_memory("g", base64.b64encode(b"\1" * 64), 0, 64)
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_bad_registrations_over_grpc(place, memory):
    key = memory(128)
    for request, code, words in (
        (dict(name="a", key="/nosuch", byte_size=64), "INTERNAL", "Unable to open shared memory region: '/nosuch'"),
        (dict(name="", key=key, byte_size=64), "INVALID_ARGUMENT", "'region name' is necessary"),
        (dict(name="a", key=key, byte_size=129), "INVALID_ARGUMENT", "failed to register shared memory region 'a': invalid args"),
        (dict(name="a", key="/triton_python_backend_shm_region_1", byte_size=1), "INVALID_ARGUMENT", "reserved"),
    ):
        with pytest.raises(Exception, match=words) as caught:
            place.stub.SystemSharedMemoryRegister(pb.SystemSharedMemoryRegisterRequest(**request))
        assert caught.value.code().name == code
    place.grpc.register_system_shared_memory("a", key, 128)
    with pytest.raises(InferenceServerException, match="shared memory region 'a' already in manager") as caught:
        place.grpc.register_system_shared_memory("a", key, 128)
    assert caught.value.status() == "StatusCode.ALREADY_EXISTS"
    # Memory that is known already is worded otherwise.
    with pytest.raises(InferenceServerException, match="Invalid shared memory region") as caught:
        place.grpc.register_system_shared_memory("b", key, 129)
    assert caught.value.status() == "StatusCode.INTERNAL"


R, B, O = "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"
OUTSIDE = [
    ({R: "a"}, 400, "Invalid offset + byte size for shared memory region: 'a'"),
    ({R: "a", B: 64, O: 64}, 400, "Invalid offset for shared memory region: 'a'"),
    ({R: "a", B: 64, O: 1}, 400, "Invalid offset + byte size for shared memory region: 'a'"),
    ({R: "a", B: 64, O: 2**64 - 16}, 400, "Invalid offset for shared memory region: 'a'"),
    ({R: "a", B: 2**64 - 16, O: 32}, 400, "for shared memory region: 'a'"),
    ({R: "a", B: "64"}, 500, "Unable to parse 'shared_memory_byte_size': attempt to access JSON non-unsigned-integer as unsigned-integer"),
    ({R: 5, B: 64}, 500, "Unable to parse 'shared_memory_region': attempt to access JSON non-string as string"),
    ({R: "a", B: 64, O: -1}, 500, "Unable to parse 'shared_memory_offset': attempt to access JSON non-unsigned-integer as unsigned-integer"),
    ({R: "nope", B: 64}, 404, "Unable to find shared memory region: 'nope'"),
]


def ask(place, given: dict, wanted: dict | None = None):
    data = {"name": "INPUT1", "shape": [1, 16], "datatype": "INT32", "data": [1] * 16}
    body = {"inputs": [{"name": "INPUT0", "shape": [1, 16], "datatype": "INT32", **given}, data]}
    if wanted is not None:
        body["outputs"] = [{"name": "OUTPUT0", "parameters": wanted}]
    return call(place.server.http, "POST", "/v2/models/simple/infer", json.dumps(body).encode())


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize(("parameters", "status", "words"), OUTSIDE, ids=lambda v: json.dumps(v)[:60])
def test_bad_places_over_http(place, memory, side, parameters, status, words):
    place.http.register_system_shared_memory("a", memory(64), 64)
    got, answer = ask(place, {"parameters": parameters}) if side == "input" else ask(place, {"data": [1] * 16}, parameters)
    assert (got, words in answer) == (status, True), answer


def test_sizes_that_do_not_fit_over_http(place, memory):
    place.http.register_system_shared_memory("a", memory(64), 64)
    status, answer = ask(place, {"parameters": {R: "a", B: 60}})
    assert status == 400 and "input byte size mismatch for input 'INPUT0' for model 'simple'. Expected 64, got 60" in answer
    status, answer = ask(place, {"data": [1] * 16}, {R: "a", B: 32})
    assert status == 500 and "shared memory size specified with the request for output 'OUTPUT0' (32 bytes) should be at least 64 bytes to hold the results" in answer
    status, answer = ask(place, {"parameters": {R: "a", B: 64, "binary_data_size": 64}})
    assert status == 400 and "But set 'binary_data_size' 'shared_memory_region'" in answer
    status, answer = ask(place, {"data": [1] * 16}, {R: "a", B: 64, "classification": 1})
    assert status == 400 and "'shared_memory_region' and 'classification'" in answer


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize(("parameters", "code", "words"), [
    ({R: "a"}, "INVALID_ARGUMENT", "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor 'T'"),
    ({R: 5, B: 64}, "INVALID_ARGUMENT", "invalid value type for 'shared_memory_region' parameter for tensor 'T', expected string_param."),
    ({R: "a", B: "64"}, "INVALID_ARGUMENT", "invalid value type for 'shared_memory_byte_size' parameter for tensor 'T', expected int64_param."),
    ({R: "a", B: 64, O: "0"}, "INVALID_ARGUMENT", "invalid value type for 'shared_memory_offset' parameter for tensor 'T', expected int64_param."),
    ({R: "a", B: -1}, "INVALID_ARGUMENT", "Invalid offset + byte size for shared memory region: 'a'"),
    ({R: "a", B: 64, O: -1}, "INVALID_ARGUMENT", "Invalid offset for shared memory region: 'a'"),
    ({R: "nope", B: 64}, "NOT_FOUND", "Unable to find shared memory region: 'nope'"),
    ({B: 64}, "INVALID_ARGUMENT", "'shared_memory_byte_size' can not be specified without 'shared_memory_region' parameter for tensor 'T'"),
])  # fmt: skip
def test_bad_places_over_grpc(place, memory, side, parameters, code, words):
    place.grpc.register_system_shared_memory("a", memory(64), 64)
    request = pb.ModelInferRequest(model_name="simple")
    for i in range(2):
        request.inputs.add(name=f"INPUT{i}", datatype="INT32", shape=[1, 16])
        if i or side == "output":
            request.raw_input_contents.append(bytes(64))
    tensor = request.inputs[0] if side == "input" else request.outputs.add(name="OUTPUT0")
    for key, value in parameters.items():
        if isinstance(value, str):
            tensor.parameters[key].string_param = value
        else:
            tensor.parameters[key].int64_param = value
    with pytest.raises(Exception) as caught:
        place.stub.ModelInfer(request)
    assert (caught.value.code().name, caught.value.details()) == (code, words.replace("'T'", f"'{tensor.name}'"))


def test_region_that_is_unregistered_while_in_use(place, memory):
    """The request that uses it ends well; then the memory is let go."""
    key = memory(64)
    place.http.register_system_shared_memory("busy", key, 64)
    given = tritonclient.grpc.InferInput("INPUT0", [1], "FP32")
    given.set_data_from_numpy(np.array([7], np.float32))
    wanted = tritonclient.grpc.InferRequestedOutput("OUTPUT0")
    wanted.set_shared_memory("busy", 64)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(place.grpc.infer, "slow", [given], outputs=[wanted])
        wait_until(lambda: answer.done() or busy(place), 5, "the request to run")
        assert not answer.done(), answer.result()
        place.http.unregister_system_shared_memory("busy")
        assert place.http.get_system_shared_memory_status() == []
        assert open_files(place, key) == 1
        answer.result(timeout=10)
    assert np.frombuffer(pathlib.Path("/dev/shm" + key).read_bytes()[:4], np.float32)[0] == 7
    wait_until(lambda: open_files(place, key) == 0, 5, "the server to close the memory")


def busy(place) -> bool:
    """Whether an instance of the slow model runs."""
    _, text = call(place.server.metrics, "GET", "/metrics")
    return bool(re.search(r'shoal_instances_busy\{[^}]*model="slow"[^}]*\} 1', text))


def test_memory_that_the_client_cuts_short(place, memory):
    """The server lives, and the request fails with the region's name."""
    key = memory(1 << 20)
    place.http.register_system_shared_memory("cut", key, 1 << 20)
    os.truncate("/dev/shm" + key, 8)
    status, answer = ask(place, {"parameters": {R: "cut", B: 64}})
    assert status == 500 and "Unable to read shared memory region: 'cut'" in answer, answer
    status, answer = ask(place, {"data": [1] * 16}, {R: "cut", B: 64})
    assert status == 500 and "Unable to write shared memory region: 'cut'" in answer, answer
    assert os.stat("/dev/shm" + key).st_size == 8


def test_huge_sparse_memory_is_not_read(place, memory):
    """A terabyte that is not there must not become a terabyte of ours."""
    key = memory(8)
    os.truncate("/dev/shm" + key, 1 << 40)
    place.http.register_system_shared_memory("huge", key, 1 << 40)
    status, answer = ask(place, {"parameters": {R: "huge", B: 1 << 40}})
    assert status == 400 and f"Expected 64, got {1 << 40}" in answer, answer
    body = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "BYTES", "parameters": {R: "huge", B: 1 << 40}}]}
    status, answer = call(place.server.http, "POST", "/v2/models/text/infer", json.dumps(body).encode())
    assert status == 400 and "more than the maximum" in answer, answer


def test_only_so_many_regions(place, memory):
    key = memory(8)
    for i in range(50):
        place.grpc.register_system_shared_memory(f"r{i}", key, 8)
    with pytest.raises(InferenceServerException, match="--client-shm-max-regions"):
        place.grpc.register_system_shared_memory("r50", key, 8)
    place.grpc.unregister_system_shared_memory()
    wait_until(lambda: open_files(place, key) == 0, 5, "the server to close the memory")
