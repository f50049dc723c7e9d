"""Every kind of refusal that the protocol knows, with its status and text, over HTTP and gRPC."""

from __future__ import annotations

import copy
import json

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

import clients
import server

SHAPE_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)
RAW_TWO = (
    "[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in "
    "'simple' model configuration"
)
ONE_SOURCE = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'. "
)


def changed(change) -> dict:
    request = copy.deepcopy(clients.simple_json())
    change(request)
    return request


def first(**fields) -> dict:
    """The good request with fields of INPUT0 set, or taken out when None."""

    def change(request):
        tensor = request["inputs"][0]
        tensor.update(fields)
        for key in [k for k, v in tensor.items() if v is None]:
            del tensor[key]

    return changed(change)


def both(**fields) -> dict:
    return changed(lambda r: [t.update(fields) for t in r["inputs"]])


def extra_input(request) -> None:
    request["inputs"].append({**request["inputs"][1], "name": "INPUT2"})


# Core validation, the same over both protocols: (request, status over HTTP, code over gRPC, text).
CORE = {
    "unknown output": (
        clients.simple_json(outputs=[{"name": "NOPE"}]),
        "unexpected inference output 'NOPE' for model 'simple'",
    ),
    "missing input": (
        changed(lambda r: r["inputs"].pop()),
        "[request id: 42] expected 2 inputs but got 1 inputs for model 'simple'. Got input(s) ['INPUT0'], but missing "
        "required input(s) ['INPUT1']. Please provide all required input(s).",
    ),
    "no inputs and no id": (
        clients.simple_json(inputs=[], id=None),
        "[request id: <id_unknown>] expected 2 inputs but got 0 inputs for model 'simple'. Got input(s) [], but missing "
        "required input(s) ['INPUT0','INPUT1']. Please provide all required input(s).",
    ),
    "unknown input": (first(name="NOPE"), "unexpected inference input 'NOPE' for model 'simple'"),
    "duplicate input": (first(name="INPUT1"), "[request id: 42] input 'INPUT1' already exists in request"),
    "no shape for a batched model": (
        first(shape=[], data=[1]),
        "[request id: 42] input 'INPUT0' has no shape but model requires batch dimension for 'simple'",
    ),
    "rows differ between inputs": (
        first(shape=[2, 16], data=[1] * 32),
        "[request id: 42] input 'INPUT{0,1}' batch size does not match other inputs for 'simple'",
    ),
    "more rows than the maximum": (
        both(shape=[9, 16], data=[1] * 144),
        "[request id: 42] inference request batch-size must be <= 8 for 'simple'",
    ),
    "wrong data type": (
        first(datatype="FP32"),
        "[request id: 42] inference input 'INPUT0' data-type is 'FP32', but model 'simple' expects 'INT32'",
    ),
    "wrong width": (
        first(shape=[1, 15], data=[1] * 15),
        "[request id: 42] unexpected shape for input 'INPUT0' for model 'simple'. Expected [-1,16], got [1,15]. "
        + SHAPE_NOTE,
    ),
    "wrong rank": (
        both(shape=[16]),
        "[request id: 42] inference request batch-size must be <= 8 for 'simple'",
    ),
    "rank too high": (
        both(shape=[1, 4, 4]),
        "[request id: 42] unexpected shape for input 'INPUT{0,1}' for model 'simple'. Expected [-1,16], got [1,4,4]. "
        + SHAPE_NOTE,
    ),
    "zero rows": (
        both(shape=[0, 16], data=[]),
        "[request id: 42] input byte size mismatch for input 'INPUT{0,1}' for model 'simple'. Expected 64, got 0",
    ),
}


def matches(got: str, want: str) -> bool:
    """Whether the texts agree; {0,1} stands for either, where the original's hash map decides."""
    options = [want] if "{0,1}" not in want else [want.replace("{0,1}", d) for d in "01"]
    return got in options


def grpc_request(request: dict, model: str = "simple") -> service_pb2.ModelInferRequest:
    made = service_pb2.ModelInferRequest(model_name=model, id=request.get("id", ""))
    for tensor in request["inputs"]:
        type_ = np.float32 if tensor["datatype"] == "FP32" else np.int32
        made.inputs.add(name=tensor["name"], datatype=tensor["datatype"], shape=tensor["shape"])
        made.raw_input_contents.append(np.array(tensor["data"], type_).tobytes())
    for output in request.get("outputs", []):
        made.outputs.add(name=output["name"])
    return made


def refused(target, request, method: str = "ModelInfer") -> tuple[grpc.StatusCode, str]:
    with grpc.insecure_channel(target.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            getattr(stub, method)(request, timeout=10)
        return caught.value.code(), caught.value.details()


@pytest.mark.peer
@pytest.mark.parametrize("case", CORE)
def test_core_validation_over_http(target, case):
    request, want = CORE[case]
    answer = clients.infer_json(target.http, request)
    got = clients.error_of(answer)
    assert answer.status == 400 and matches(got, want), f"got {answer.status} {got!r}, want 400 {want!r}"
    assert answer.headers["Content-Type"].startswith("application/json")


@pytest.mark.peer
@pytest.mark.parametrize("case", CORE)
def test_core_validation_over_grpc(target, case):
    request, want = CORE[case]
    code, got = refused(target, grpc_request(request))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and matches(got, want), f"got {code} {got!r}, want {want!r}"


def test_too_many_inputs_name_no_missing_ones(target):
    """The original's list is malformed here: ours is empty but whole."""
    request = changed(extra_input)
    want = "expected 2 inputs but got 3 inputs for model 'simple'. Got input(s) ["
    end = "], but missing required input(s) []. Please provide all required input(s)."
    answer = clients.infer_json(target.http, request)
    code, text = refused(target, grpc_request(request))
    assert (answer.status, code) == (400, grpc.StatusCode.INVALID_ARGUMENT)
    for got in (clients.error_of(answer), text):
        assert got.startswith(f"[request id: 42] {want}") and got.endswith(end), got


# What only HTTP can get wrong: (status, text, request, extra).
JSON = {
    "garbage": (500, "failed to parse the request JSON buffer: Missing a name for object member. at 1", "{garbage"),
    "trailing text": (
        500, "failed to parse the request JSON buffer: The document root must not be followed by other values. at ",
        json.dumps(clients.simple_json()) + "x"),
    "an array": (500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'", "[]"),
    "no inputs": (
        500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'", '{"id":"1"}'),
    "inputs is no list": (
        500, "Unable to parse 'inputs': attempt to access JSON non-array as array", '{"inputs":{}}'),
    "id is a number": (
        500, "Unable to parse 'id': attempt to access JSON non-string as string", clients.simple_json(id=7)),
    "input without name": (
        500, "Unable to parse 'name': attempt to access non-existing object member 'name'", first(name=None)),
    "input without shape": (
        500, "Unable to parse 'shape': attempt to access non-existing object member 'shape'", first(shape=None)),
    "input without datatype": (
        500, "Unable to parse 'datatype': attempt to access non-existing object member 'datatype'",
        first(datatype=None)),
    "input without data": (400, ONE_SOURCE + "But no field is set", first(data=None)),
    "data twice": (
        400, ONE_SOURCE + "But set 'data' 'binary_data_size'", first(parameters={"binary_data_size": 64})),
    "negative dimension": (
        500, "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer",
        first(shape=[1, -16])),
    "unknown datatype": (400, "invalid datatype for input INPUT0", first(datatype="COMPLEX")),
    "datatype in small letters": (400, "invalid datatype for input INPUT0", first(datatype="int32")),
    "string among integers": (
        500, "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer",
        first(data=["1"] + [1] * 15)),
    "float among integers": (
        500, "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer",
        first(data=[1.5] + [1] * 15)),
    "null among integers": (
        500, "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer",
        first(data=[None] + [1] * 15)),
    "too many elements": (
        500, "Unable to parse 'data': Shape does not match true shape of 'data' field", first(data=[1] * 17)),
    "too few elements": (
        500, "Unable to parse 'data': Shape does not match true shape of 'data' field", first(data=[1] * 15)),
    "parameter with triton_ name": (
        400, "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
        clients.simple_json(parameters={"triton_x": 1})),
    "parameter that is a list": (
        400, "parameter 'x' has invalid type. It should be either 'int', 'bool', or 'string'.",
        clients.simple_json(parameters={"x": [1]})),
}  # fmt: skip


@pytest.mark.peer
@pytest.mark.parametrize("case", JSON)
def test_json_faults(target, case):
    status, want, request = JSON[case]
    answer = clients.infer_json(target.http, request)
    got = clients.error_of(answer)
    assert answer.status == status and got.startswith(want), f"got {answer.status} {got!r}, want {status} {want!r}"


@pytest.mark.peer
def test_an_output_asked_for_twice_comes_once(target):
    request = clients.simple_json(outputs=[{"name": "OUTPUT0"}, {"name": "OUTPUT0"}])
    answer = clients.infer_json(target.http, request)
    assert answer.status == 200, answer.text
    assert [o["name"] for o in json.loads(answer.body)["outputs"]] == ["OUTPUT0"]


@pytest.mark.peer
@pytest.mark.parametrize("path, status, text", [
    ("/v2/models/nosuch/infer", 404, "Request for unknown model: 'nosuch' is not found"),
    ("/v2/models/simple/versions/9/infer", 404, "Request for unknown model: 'simple' version 9 is not found"),
    ("/v2/models/simple/versions/abc/infer", 404, "Not Found"),
    ("/v2/models/simple/infer/", 404, "Not Found"),
    ("/v2/models//infer", 404, "Not Found"),
    ("/v1/models/simple:predict", 404, "Not Found"),
])  # fmt: skip
def test_what_is_not_there_over_http(target, path, status, text):
    answer = clients.infer_json(target.http, clients.simple_json(), path=path)
    assert (answer.status, clients.error_of(answer)) == (status, text)


def binary_body(sizes=(64, 64), data: bytes | None = None) -> tuple[bytes, int]:
    """A binary request for `simple` whose tensors claim the given sizes, and its JSON length."""
    request = clients.simple_json()
    for tensor, size in zip(request["inputs"], sizes):
        del tensor["data"]
        tensor["parameters"] = {"binary_data_size": size}
    head = json.dumps(request).encode()
    tail = clients.RAMP.tobytes() + clients.ONES.tobytes() if data is None else data
    return head + tail, len(head)


BODY, HEAD = binary_body()
BINARY = {
    "a tensor is cut short": (
        *binary_body(data=bytes(124)), "unexpected size for input 'INPUT1', expecting 4 additional bytes for model 'simple'"),
    "bytes are left over": (*binary_body(data=bytes(129)), "unexpected additional input data for model 'simple'"),
    "a size that is not the shape's": (
        *binary_body((60, 64), bytes(124)),
        "[request id: 42] input byte size mismatch for input 'INPUT0' for model 'simple'. Expected 64, got 60"),
    "the header's length is zero": (BODY, 0, RAW_TWO),
    "the header's length is negative": (
        BODY, -5, f"inference header size should be in range (0, {len(BODY)}), got: -5"),
    "the header's length is larger than the body": (
        BODY, 99999, f"inference header size should be in range (0, {len(BODY)}), got: 99999"),
}  # fmt: skip


@pytest.mark.peer
@pytest.mark.parametrize("case", BINARY)
def test_binary_tensor_faults(target, case):
    body, length, want = BINARY[case]
    headers = {"Inference-Header-Content-Length": str(length)}
    answer = clients.infer_json(target.http, body, headers=headers)
    assert (answer.status, clients.error_of(answer)) == (400, want)


@pytest.mark.parametrize("value, text", [
    ("abc", "Unable to parse Inference-Header-Content-Length, got: abc"),
    ("99999999999", "Unable to parse Inference-Header-Content-Length, value is out of range "
                    "[ -2147483648, 2147483647 ], got: 99999999999"),
])  # fmt: skip
def test_header_lengths_that_are_no_int32(target, value, text):
    answer = clients.infer_json(target.http, BODY, headers={"Inference-Header-Content-Length": value})
    assert (answer.status, clients.error_of(answer)) == (400, text)


@pytest.mark.peer
def test_an_empty_body_is_a_raw_request(target):
    answer = clients.infer_json(target.http, b"")
    assert (answer.status, clients.error_of(answer)) == (400, RAW_TWO)


STRINGS = {
    "a length that is cut": (
        b"\x01\x00", 2, "[request id: <id_unknown>] incomplete string length indicator for inference input 'INPUT0' for "
        "model 'identity_bytes', expecting 4 bytes but only 2 bytes available. Please make sure the string length "
        "indicator is in one buffer."),
    "too many strings": (
        b"\x01\x00\x00\x00a" * 3, 2, "[request id: <id_unknown>] unexpected number of string elements 3 for inference "
        "input 'INPUT0' for model 'identity_bytes', expecting 2"),
    "too few strings": (
        b"\x01\x00\x00\x00a", 2, "[request id: <id_unknown>] expected 2 string elements for inference input 'INPUT0' for "
        "model 'identity_bytes', got 1"),
}  # fmt: skip


def string_request(data: bytes, count: int) -> service_pb2.ModelInferRequest:
    request = service_pb2.ModelInferRequest(model_name="identity_bytes", raw_input_contents=[data])
    request.inputs.add(name="INPUT0", datatype="BYTES", shape=[1, count])
    return request


@pytest.mark.peer
@pytest.mark.parametrize("case", STRINGS)
def test_string_tensor_faults_over_grpc(target, case):
    data, count, want = STRINGS[case]
    assert refused(target, string_request(data, count)) == (grpc.StatusCode.INVALID_ARGUMENT, want)


@pytest.mark.peer
@pytest.mark.parametrize("case", STRINGS)
def test_string_tensor_faults_over_http(target, case):
    data, count, want = STRINGS[case]
    tensor = {"name": "INPUT0", "datatype": "BYTES", "shape": [1, count]}
    tensor["parameters"] = {"binary_data_size": len(data)}
    head = json.dumps({"inputs": [tensor]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    answer = clients.infer_json(target.http, head + data, model="identity_bytes", headers=headers)
    assert (answer.status, clients.error_of(answer)) == (400, want)


@pytest.mark.peer
def test_a_string_that_runs_past_the_end(target):
    code, text = refused(target, string_request(b"\x09\x00\x00\x00abc", 1))
    want = (
        "incomplete string data for inference input 'INPUT0', expecting string of length 9 but only 3 bytes available"
    )
    assert want in text and code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL)


def good() -> service_pb2.ModelInferRequest:
    return grpc_request(clients.simple_json())


def grpc_case(change):
    request = good()
    change(request)
    return request


def with_contents(request) -> None:
    request.inputs[0].contents.int_contents.extend([1] * 16)


def wrong_contents(request) -> None:
    del request.raw_input_contents[:]
    request.inputs[0].contents.fp32_contents.extend([1] * 16)


def parameter(name: str, kind: str, value):
    return lambda request: setattr(request.parameters[name], kind, value)


INVALID = grpc.StatusCode.INVALID_ARGUMENT
GRPC = {
    "unknown model": (
        lambda r: setattr(r, "model_name", "nosuch"), grpc.StatusCode.NOT_FOUND,
        "Request for unknown model: 'nosuch' is not found"),
    "unknown version": (
        lambda r: setattr(r, "model_version", "9"), grpc.StatusCode.NOT_FOUND,
        "Request for unknown model: 'simple' version 9 is not found"),
    "version that is no number": (
        lambda r: setattr(r, "model_version", "abc"), INVALID,
        "failed to get model version from specified version string 'abc' (details: stol), version should be an integral "
        "value > 0"),
    "negative version": (
        lambda r: setattr(r, "model_version", "-1"), INVALID,
        "invalid model version specified '-1' , version should be an integral value > 0"),
    "contents beside raw contents": (
        with_contents, INVALID,
        "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'simple'"),
    "raw contents for one input only": (
        lambda r: r.raw_input_contents.pop(), INVALID,
        "unable to find data for input tensor 'INPUT1' for model 'simple' in request."),
    "contents of another type": (
        wrong_contents, INVALID,
        "unexpected explicit tensor data for input tensor 'INPUT0' for model 'simple' of type 'FP32', expected datatype "
        "'INT32'"),
    "raw contents that are cut": (
        lambda r: r.raw_input_contents.__setitem__(0, bytes(60)), INVALID,
        "[request id: 42] input byte size mismatch for input 'INPUT0' for model 'simple'. Expected 64, got 60"),
    "unknown datatype": (
        lambda r: setattr(r.inputs[0], "datatype", "COMPLEX"), INVALID,
        "[request id: 42] inference input 'INPUT0' data-type is '<invalid>', but model 'simple' expects 'INT32'"),
    "sequence id that is a bool": (
        parameter("sequence_id", "bool_param", True), INVALID,
        "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."),
    "sequence start that is a number": (
        parameter("sequence_start", "int64_param", 1), INVALID,
        "invalid value type for 'sequence_start' parameter, expected bool_param."),
    "timeout that is text": (
        parameter("timeout", "string_param", "1"), INVALID,
        "invalid value type for 'timeout' parameter, expected int64_param."),
    "parameter with a triton_ name": (
        parameter("triton_x", "int64_param", 1), INVALID,
        "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with "
        "'triton_' are allowed: triton_enable_empty_final_response"),
}  # fmt: skip


@pytest.mark.peer
@pytest.mark.parametrize("case", GRPC)
def test_grpc_faults(target, case):
    change, code, want = GRPC[case]
    assert refused(target, grpc_case(change)) == (code, want)


@pytest.mark.peer
def test_negative_dimensions_over_grpc(target):
    request = service_pb2.ModelInferRequest(model_name="identity_int32", raw_input_contents=[bytes(64)], id="42")
    request.inputs.add(name="INPUT0", datatype="INT32", shape=[1, -1])
    want = "[request id: 42] All input dimensions should be specified for input 'INPUT0' for model 'identity_int32', got [1,-1]"
    assert refused(target, request) == (INVALID, want)


@pytest.mark.peer
@pytest.mark.parametrize("encoding, status", [("br", 501), ("zstd", 501)])
def test_unknown_encodings_are_refused_with_what_is_known(target, encoding, status):
    answer = clients.infer_json(target.http, clients.simple_json(), headers={"Content-Encoding": encoding})
    assert (answer.status, clients.error_of(answer)) == (status, "Unsupported compression type")
    assert answer.headers["Accept-Encoding"] == "gzip, deflate"


@pytest.mark.peer
@pytest.mark.parametrize("path, method, text", [
    ("/v2/models/simple/infer", "GET", "Method Not Allowed"),
    ("/v2/models/simple", "DELETE", "Method Not Allowed"),
    ("/v2", "POST", "Method Not Allowed"),
    ("/v2/health/live", "POST", "Method Not Allowed"),
    ("/v2/repository/index", "GET", "Method Not Allowed"),
])  # fmt: skip
def test_known_paths_with_the_wrong_method(target, path, method, text):
    answer = server.call(target.http, method, path)
    assert (answer.status, clients.error_of(answer)) == (405, text)
