"""Every data type of the protocol, by every road that can carry it."""

import numpy as np
import pytest

import clients
import models

# JSON has no place for these two; the protocol says to send them as binary.
JSON_TYPES = [wire for wire in models.TYPES if wire not in ("FP16", "BF16")]


def peer_unless_bf16(wires):
    return [pytest.param(w, marks=[] if w == "BF16" else [pytest.mark.peer]) for w in wires]


def expected(wire: str, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum and difference with the type's own wrap and rounding."""
    if wire in ("FP16", "BF16"):
        wide = a.astype(np.float32), b.astype(np.float32)
        return (wide[0] + wide[1]).astype(a.dtype), (wide[0] - wide[1]).astype(a.dtype)
    with np.errstate(over="ignore"):
        return a + b, a - b


def check_add_sub(client, library, wire: str, **more) -> None:
    a, b = clients.sample(wire, (2, 16)), clients.sample(wire, (2, 16), step=7)
    got = client.infer(f"add_sub_{wire.lower()}", clients.pair(library, wire, a, b, **more))
    for name, want in zip(("OUTPUT0", "OUTPUT1"), expected(wire, a, b)):
        array = got.as_numpy(name)
        assert array.shape == (2, 16)
        np.testing.assert_array_equal(array.astype(want.dtype), want)


@pytest.mark.parametrize("wire", peer_unless_bf16(models.NUMERIC))
def test_add_sub_over_http_binary(http_client, wire):
    check_add_sub(http_client, clients.LIBRARIES["http"], wire)


@pytest.mark.peer
@pytest.mark.parametrize("wire", [w for w in models.NUMERIC if w in JSON_TYPES])
def test_add_sub_over_http_json(http_client, wire):
    check_add_sub(http_client, clients.LIBRARIES["http"], wire, binary_data=False)


@pytest.mark.parametrize("wire", peer_unless_bf16(models.NUMERIC))
def test_add_sub_over_grpc(grpc_client, wire):
    check_add_sub(grpc_client, clients.LIBRARIES["grpc"], wire)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 600)], ids=str)
@pytest.mark.parametrize("wire", peer_unless_bf16(models.TYPES))
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_identity_gives_back_what_it_got(http_client, grpc_client, protocol, wire, shape):
    client = {"http": http_client, "grpc": grpc_client}[protocol]
    array = clients.sample(wire, shape)
    inputs = [clients.tensor(clients.LIBRARIES[protocol], "INPUT0", wire, array)]
    got = client.infer(f"identity_{wire.lower()}", inputs).as_numpy("OUTPUT0")
    np.testing.assert_array_equal(got.astype(array.dtype), array)


@pytest.mark.peer
@pytest.mark.parametrize("wire", JSON_TYPES)
@pytest.mark.parametrize("way", ["json to json", "json to binary", "binary to json"])
def test_identity_by_json_on_either_side(http_client, wire, way):
    library = clients.LIBRARIES["http"]
    array = clients.sample(wire, (3, 5))
    inputs = [clients.tensor(library, "INPUT0", wire, array, binary_data=way.startswith("binary"))]
    outputs = [library.InferRequestedOutput("OUTPUT0", binary_data=way.endswith("binary"))]
    got = http_client.infer(f"identity_{wire.lower()}", inputs, outputs=outputs).as_numpy("OUTPUT0")
    if wire == "BYTES" and got.dtype.type is not np.object_:
        got = got.astype(np.object_)
    if wire == "BYTES":
        got = np.array([g.encode() if isinstance(g, str) else g for g in got.ravel()]).reshape(got.shape)
        array = np.array(list(array.ravel())).reshape(array.shape)
    np.testing.assert_array_equal(got, array)


@pytest.mark.peer
@pytest.mark.parametrize("wire", ["FP32", "FP64"])
def test_floats_that_are_no_numbers_survive_json(target, wire):
    text = '{"inputs":[{"name":"INPUT0","datatype":"%s","shape":[1,3],"data":[NaN,Infinity,-Infinity]}]}' % wire
    answer = clients.infer_json(target.http, text, model=f"identity_{wire.lower()}")
    assert answer.status == 200, answer.text
    assert answer.text.endswith('"data":[NaN,Infinity,-Infinity]}]}')


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_bytes_may_hold_any_byte(http_client, grpc_client, protocol):
    client = {"http": http_client, "grpc": grpc_client}[protocol]
    array = np.array([[bytes(range(256)), b"\x00", b"a\x00b", b"\xff\xfe"]], np.object_)
    inputs = [clients.tensor(clients.LIBRARIES[protocol], "INPUT0", "BYTES", array)]
    got = client.infer("identity_bytes", inputs).as_numpy("OUTPUT0")
    assert got.ravel().tolist() == array.ravel().tolist()


@pytest.mark.peer
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_model_works_on_strings(http_client, grpc_client, protocol):
    client = {"http": http_client, "grpc": grpc_client}[protocol]
    a = np.array([[b"left ", b"", b"x"]], np.object_)
    b = np.array([[b"right", b"", "\u00df".encode()]], np.object_)
    got = client.infer("concat", clients.pair(clients.LIBRARIES[protocol], "BYTES", a, b))
    want = [x + y for x, y in zip(a.ravel(), b.ravel())]
    assert got.as_numpy("OUTPUT0").ravel().tolist() == want


@pytest.mark.peer
@pytest.mark.parametrize("wire", ["FP16", pytest.param("BF16", marks=pytest.mark.skipif("config.option.target_http"))])
def test_half_floats_are_refused_as_json(target, wire):
    request = {"inputs": [{"name": "INPUT0", "datatype": wire, "shape": [1, 1], "data": [1.0]}]}
    answer = clients.infer_json(target.http, request, model=f"identity_{wire.lower()}")
    want = f"receiving {wire} data via JSON is not supported. Please use the binary data format for input INPUT0"
    assert (answer.status, clients.error_of(answer)) == (400, want)


@pytest.mark.peer
def test_half_floats_are_not_sent_as_json(http_client):
    library = clients.LIBRARIES["http"]
    inputs = [clients.tensor(library, "INPUT0", "FP16", np.ones((1, 1), np.float16))]
    outputs = [library.InferRequestedOutput("OUTPUT0", binary_data=False)]
    with pytest.raises(Exception) as caught:
        http_client.infer("identity_fp16", inputs, outputs=outputs)
    want = "sending FP16 data via JSON is not supported. Please use the binary data format for output"
    assert caught.value.message().startswith(want)


@pytest.mark.peer
def test_float_text_is_the_double_of_the_float(target):
    request = {
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 6], "data": [0.1, 1e10, 1e-10, 3, 1e30, 0]}]
    }
    answer = clients.infer_json(target.http, request, model="identity_fp32")
    want = '"data":[0.10000000149011612,10000000000.0,1.000000013351432e-10,3.0,1.0000000150474662e30,0.0]}]}'
    assert answer.text.endswith(want), answer.text


@pytest.mark.peer
def test_integers_wrap_to_the_declared_width(target):
    request = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 1], "data": [3000000000]}]}
    answer = clients.infer_json(target.http, request, model="identity_int32")
    assert answer.text.endswith('"data":[-1294967296]}]}'), answer.text
