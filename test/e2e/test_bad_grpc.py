"""Bad input to the gRPC port: bytes that are no HTTP/2, messages that are no messages, shapes that lie."""

from __future__ import annotations

import struct
import time

import grpc
import numpy as np
import pytest
import tritonclient.grpc as library
from tritonclient.grpc import service_pb2

import clients
import rawhttp

MIB = 1 << 20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
METHOD = "/inference.GRPCInferenceService/ModelInfer"


@pytest.fixture(autouse=True)
def unharmed(target, grpc_client):
    """After every case the process lives, its memory is bounded, and it answers."""
    running = target.process
    before = running.rss()
    yield
    assert running.process.poll() is None, f"the server died:\n{running.log}"
    assert "panic" not in running.log and "BUG:" not in running.log, running.log
    assert running.rss() - before < 128 * MIB
    begin = time.monotonic()
    clients.assert_simple(grpc_client.infer("simple", clients.simple_inputs(library)))
    assert time.monotonic() - begin < 1


def frame(kind: int, flags: int, stream: int, payload: bytes, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


SETTINGS = frame(4, 0, 0, b"")

FRAMES = {
    "an HTTP/1 request": b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n",
    "random bytes": bytes(range(256)) * 10,
    "the preface and random bytes": PREFACE + bytes(range(256)) * 10,
    "a preface that is cut": PREFACE[:10] + b"\r\n\r\n\r\n\r\n\r\n",
    "a frame of 16 MiB that is not there": PREFACE
    + SETTINGS
    + frame(0, 0, 1, b"", length=(1 << 24) - 1)
    + b"x" * 20000,
    "data on a stream that was not opened": PREFACE + SETTINGS + frame(0, 1, 1, b"abc"),
    "headers that are no HPACK": PREFACE + SETTINGS + frame(1, 5, 1, b"\xff" * 50),
    "headers on an even stream": PREFACE + SETTINGS + frame(1, 5, 2, b"\x82\x86\x84"),
    "a window update of zero": PREFACE + SETTINGS + frame(8, 0, 0, bytes(4)),
    "settings of a wrong size": PREFACE + frame(4, 0, 0, b"abc"),
    "a continuation out of nothing": PREFACE + SETTINGS + frame(9, 4, 1, b"\x82"),
    "ten thousand pings": PREFACE + SETTINGS + frame(6, 0, 0, bytes(8)) * 10_000,
    "ten thousand settings": PREFACE + SETTINGS * 10_000,
    "a header block of a megabyte": PREFACE
    + SETTINGS
    + frame(1, 0, 1, b"\x00\x01a\x01b" * 3000)
    + frame(9, 0, 1, b"\x00\x01a\x01b" * 3000) * 60,
}


@pytest.mark.parametrize("case", FRAMES)
def test_bytes_that_are_no_calls_do_no_harm(target, case):
    with rawhttp.connect(target.grpc, timeout=2) as sock:
        try:
            sock.sendall(FRAMES[case])
            sock.settimeout(0.2)
            while sock.recv(65536):
                pass
        except (TimeoutError, ConnectionError):
            pass  # kept open or reset: both are its right


def call(target, data: bytes) -> tuple[grpc.StatusCode, str, float]:
    """Sends raw bytes as the request message and returns the status."""
    begin = time.monotonic()
    with grpc.insecure_channel(target.grpc) as channel:
        try:
            channel.unary_unary(METHOD)(data, timeout=5)
            return grpc.StatusCode.OK, "", time.monotonic() - begin
        except grpc.RpcError as err:
            return err.code(), err.details(), time.monotonic() - begin


def message(model: str = "simple", **more) -> service_pb2.ModelInferRequest:
    return service_pb2.ModelInferRequest(model_name=model, **more)


def tensor(model: str, datatype: str, shape: list[int], raw: bytes) -> bytes:
    made = message(model, raw_input_contents=[raw])
    made.inputs.add(name="INPUT0", datatype=datatype, shape=shape)
    return made.SerializeToString()


def good() -> bytes:
    made = message()
    for i in range(2):
        made.inputs.add(name=f"INPUT{i}", datatype="INT32", shape=[1, 16])
        made.raw_input_contents.append(np.zeros(16, np.int32).tobytes())
    return made.SerializeToString()


def many_inputs(count: int) -> bytes:
    made = message()
    for i in range(count):
        made.inputs.add(name=f"X{i}", datatype="INT32", shape=[1])
        made.raw_input_contents.append(bytes(4))
    return made.SerializeToString()


def long_varint() -> bytes:
    """A shape whose varint is longer than any integer."""
    inner = b"\x0a\x06INPUT0" + b"\x1a\x0c" + b"\xff" * 11 + b"\x01"
    return b"\x0a\x06simple" + b"\x2a" + bytes([len(inner)]) + inner


INVALID, INTERNAL, NOT_FOUND = (
    grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL, grpc.StatusCode.NOT_FOUND,
)  # fmt: skip
MALFORMED = (INVALID, INTERNAL)

# sentence: (message, codes that are right, words of the status)
MESSAGES = {
    "bytes that are no message": (b"\xff" * 100, MALFORMED, ""),
    "a message that is cut": (good()[:-10], MALFORMED, ""),
    "a field that claims two gigabytes": (b"\x0a\xff\xff\xff\xff\x07abc", MALFORMED, ""),
    "a field number of zero": (b"\x00\x01", MALFORMED, ""),
    "a group that is never closed": (b"\x0b" * 1000, MALFORMED, ""),
    "a varint that never ends": (long_varint(), MALFORMED, ""),
    "a model name that is no UTF-8": (b"\x0a\x02\xff\xfe", (INVALID, INTERNAL, NOT_FOUND), ""),
    "a field of the wrong kind": (b"\x08\x01" + good(), (grpc.StatusCode.OK, *MALFORMED), ""),
    "an unknown field": (good() + b"\xfa\x3f\x03abc", (grpc.StatusCode.OK,), ""),
    "an empty message": (b"", (INVALID, NOT_FOUND), ""),
    "a shape of 2^63 elements": (tensor("identity_fp32", "FP32", [1 << 32, 1 << 31], bytes(4)), (INVALID,), "INPUT0"),
    "a shape whose product wraps to zero": (
        tensor("identity_fp32", "FP32", [1 << 32, 1 << 32], b""), (INVALID,), "INPUT0"),
    "a shape whose byte size overflows": (
        tensor("identity_fp32", "FP32", [1, 1 << 62], bytes(4)), (INVALID,), "INPUT0"),
    "a shape of the smallest integer": (
        tensor("identity_fp32", "FP32", [-(1 << 63), 1], bytes(4)), (INVALID,), "INPUT0"),
    "a shape of a hundred thousand dimensions": (
        tensor("identity_fp32", "FP32", [1] * 100_000, bytes(4)), MALFORMED, ""),
    "strings of a shape of 2^62 elements": (
        tensor("identity_bytes", "BYTES", [1, 1 << 62], bytes(4)), (INVALID,), "INPUT0"),
    "a string that claims four gigabytes": (
        tensor("identity_bytes", "BYTES", [1, 1], b"\xff\xff\xff\xffabc"), MALFORMED, "incomplete string data"),
    "a string length that is cut": (
        tensor("identity_bytes", "BYTES", [1, 1], b"\x01\x00"), (INVALID,), "incomplete string length indicator"),
    "strings that are cut": (
        tensor("identity_bytes", "BYTES", [1, 3], b"\x01\x00\x00\x00a"), (INVALID,), "expected 3 string elements"),
    "ten thousand inputs": (many_inputs(10_000), (INVALID,), "expected 2 inputs but got 10000"),
    "an input given twice": (
        message(inputs=[{"name": "INPUT0", "datatype": "INT32", "shape": [1, 16]}] * 2,
                raw_input_contents=[bytes(64)] * 2).SerializeToString(), (INVALID,), "already exists in request"),
    "nested messages a thousand deep": (b"\x2a\x82\x01" * 1000, MALFORMED, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", MESSAGES)
def test_bad_messages_get_their_status_within_a_second(target, case):
    data, codes, words = MESSAGES[case]
    code, text, seconds = call(target, data)
    assert code in codes and words in text, f"got {code} {text!r}, want one of {codes} with {words!r}"
    assert seconds < 1, f"answered after {seconds:.2f} s"


def test_a_thousand_calls_that_are_cancelled_leave_nothing_behind(target):
    with grpc.insecure_channel(target.grpc) as channel:
        infer = channel.unary_unary(METHOD)
        for _ in range(1000):
            infer.future(good()).cancel()


def test_a_message_over_the_limit_is_refused(serve):
    import models

    running = serve("--grpc-max-message-size=100000", wanted=(models.simple(), models.identity("FP32"))).wait_ready()
    with library.InferenceServerClient(running.grpc) as client:
        big = [clients.tensor(library, "INPUT0", "FP32", np.zeros((1, 100_000), np.float32))]
        with pytest.raises(Exception) as caught:
            client.infer("identity_fp32", big)
        assert "RESOURCE_EXHAUSTED" in str(caught.value)
        clients.assert_simple(client.infer("simple", clients.simple_inputs(library)))
