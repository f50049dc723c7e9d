"""Bad input over real sockets: each case gets its status in a second, or is cut off at the limit set for it;
memory stays bounded, and the next good request is answered."""

from __future__ import annotations

import gzip
import json
import re
import socket
import subprocess
import time
import zlib
from concurrent import futures

import pytest

import clients
import models
import rawhttp
import server
from rawhttp import CLOSED, chunked, request

MIB = 1 << 20
MAX_INPUT, MAX_BODY, MAX_CONNECTIONS = MIB, 4 * MIB, 64
HEADER_SECS, BODY_SECS, IDLE_SECS = 1, 1, 2
# What the process may hold beyond its first memory, whatever it is sent.
MEMORY = 192 * MIB

INFER = "/v2/models/simple/infer"
INDEX = "/v2/repository/index"


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """A server with tight limits."""
    wanted = [models.simple(), models.identity("FP32"), models.identity("BYTES"), models.slow("slow", 100)]
    repository = models.write(tmp_path_factory.mktemp("strict"), *wanted)
    limits = (
        f"--http-max-input-size={MAX_INPUT}", f"--http-max-body-size={MAX_BODY}",
        f"--http-max-connections={MAX_CONNECTIONS}", f"--http-header-timeout-secs={HEADER_SECS}",
        f"--http-body-timeout-secs={BODY_SECS}", f"--http-idle-timeout-secs={IDLE_SECS}",
    )  # fmt: skip
    with server.Server("--model-repository", repository, *limits, *server.PORTS, *server.LOOPBACK) as running:
        running.wait_ready()
        yield running


@pytest.fixture(autouse=True)
def unharmed(strict):
    """After every case: the process lives, its memory is bounded, and it answers."""
    before = strict.rss()
    yield
    assert strict.process.poll() is None, f"the server died:\n{strict.log}"
    assert "panic" not in strict.log and "BUG:" not in strict.log, strict.log
    grown = (strict.peak_rss() - before) / MIB
    assert strict.peak_rss() < 100 * MIB + MEMORY, f"the process grew by {grown:.0f} MiB"
    begin = time.monotonic()
    answer = clients.infer_json(strict.http, clients.simple_json())
    assert answer.status == 200, answer.text
    assert time.monotonic() - begin < 1


def simple(**more) -> bytes:
    return json.dumps(clients.simple_json(**more)).encode()


def first(**fields) -> bytes:
    """The good request with fields of its first input changed."""
    made = clients.simple_json()
    made["inputs"][0].update(fields)
    return json.dumps(made).encode()


def one(text: str, model: str = "identity_fp32", **headers) -> bytes:
    """A request with one input, given as the text inside its braces."""
    body = ('{"inputs":[{"name":"INPUT0",%s}]}' % text).encode()
    return request(f"/v2/models/{model}/infer", body, headers=headers)


def binary(
    size: object, data: bytes, shape: str = "[1,4]", datatype: str = "FP32", model: str = "identity_fp32"
) -> bytes:
    """A request with one binary input that claims a size."""
    head = (
        '{"inputs":[{"name":"INPUT0","datatype":"%s","shape":%s,"parameters":{"binary_data_size":%s}}]}'
        % (datatype, shape, size)
    ).encode()
    headers = {"Inference-Header-Content-Length": len(head)}
    return request(f"/v2/models/{model}/infer", head + data, headers=headers)


def framed(body: bytes, **headers) -> bytes:
    return request(INFER, body, headers={k.replace("_", "-"): v for k, v in headers.items()})


def many(count: int, key: str) -> bytes:
    tensor = {"name": "INPUT%d", "shape": [1], "datatype": "INT32", "data": [1]}
    items = [json.dumps({**tensor, "name": f"X{i}"} if key == "inputs" else {"name": f"X{i}"}) for i in range(count)]
    base = clients.simple_json()
    base[key] = json.loads("[" + ",".join(items) + "]")
    return json.dumps(base).encode()


def nested(depth: int, closed: bool = True) -> str:
    return "[" * depth + ("1" + "]" * depth if closed else "")


BOMB = gzip.compress(bytes(64 * MIB), 9)
GZIP = gzip.compress(simple())

# sentence: (what is sent, statuses that are right, words of the error)
CASES: dict[str, tuple[bytes, tuple[int, ...], str]] = {
    # Not HTTP.
    "a line that is no request": (b"HELLO\r\n\r\n", (CLOSED, 400), ""),
    "random bytes": (bytes(range(256)) * 8 + b"\r\n\r\n", (CLOSED, 400), ""),
    "a TLS greeting": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(508) + b"\r\n\r\n", (CLOSED, 400), ""),
    "the HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), (CLOSED, 400, 404, 405, 505), ""),
    "an unknown protocol version": (b"GET /v2 HTTP/9.9\r\nHost: x\r\n\r\n", (CLOSED, 200, 400, 505), ""),
    "a header line without a colon": (b"GET /v2 HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n", (CLOSED, 400), ""),
    "a space before the colon": (b"GET /v2 HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", (CLOSED, 400), ""),
    "a null byte in a header": (b"GET /v2 HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n", (CLOSED, 400), ""),
    "a null byte in the path": (b"GET /v2/models/\x00 HTTP/1.1\r\nHost: x\r\n\r\n", (CLOSED, 400, 404), ""),
    # Floods.
    "ten thousand headers": (
        request("/v2", method="GET", headers={f"X-{i}": "y" * 20 for i in range(10_000)}), (CLOSED, 400, 431), ""),
    "one header of a megabyte": (request("/v2", method="GET", headers={"X": "y" * MIB}), (CLOSED, 400, 431), ""),
    "a path of a megabyte": (request("/v2/" + "x" * MIB, method="GET"), (CLOSED, 400, 414, 431), ""),
    "a model name of three thousand letters": (
        request("/v2/models/" + "x" * 3000, method="GET"), (404,), "Request for unknown model"),
    "a model name that climbs": (request("/v2/models/../../etc/passwd", method="GET"), (400, 404), ""),
    "a model name that climbs in disguise": (
        request("/v2/models/..%2f..%2fetc%2fpasswd", method="GET"), (404,), "Request for unknown model"),
    # Lengths that lie.
    "a negative content length": (framed(simple(), Content_Length=-1), (CLOSED, 400), ""),
    "a content length that is no number": (framed(simple(), Content_Length="abc"), (CLOSED, 400), ""),
    "a content length beyond 64 bits": (framed(simple(), Content_Length=2**64 + 10), (CLOSED, 400, 413), ""),
    "a content length over the limit": (framed(b"", Content_Length=MAX_BODY + 1), (400, 413), "http-max-body-size"),
    "a content length of two gigabytes": (framed(b"", Content_Length=2**31 - 1), (400, 413), "http-max-body-size"),
    "two content lengths": (
        b"POST " + INFER.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 300\r\n\r\n{}x",
        (CLOSED, 400), ""),
    "a content length that cuts the JSON": (framed(simple()[:100]), (400, 500), "failed to parse the request JSON"),
    "a header length of zero for two inputs": (
        framed(simple(), Inference_Header_Content_Length=0), (400,), "Raw request must only have 1 input"),
    "a header length beyond the body": (
        framed(simple(), Inference_Header_Content_Length=9999), (400,), "inference header size should be in range"),
    "a negative header length": (
        framed(simple(), Inference_Header_Content_Length=-7), (400,), "inference header size should be in range"),
    "a header length that is no number": (
        framed(simple(), Inference_Header_Content_Length="12abc"), (400,), "Unable to parse Inference-Header-Content-Length"),
    "a header length beyond 32 bits": (
        framed(simple(), Inference_Header_Content_Length=2**63), (400,), "value is out of range"),
    "a header length in the middle of the JSON": (
        framed(simple(), Inference_Header_Content_Length=50), (400, 500), "failed to parse the request JSON"),
    # Binary tensors that lie.
    "a tensor that claims more than the body has": (binary(1 << 40, b"1234"), (400,), "additional bytes"),
    "a tensor that claims 2^63 bytes": (binary(2**63, b"1234"), (400, 500), ""),
    "a tensor that claims a negative size": (binary(-4, b"1234"), (400, 500), ""),
    "a tensor that claims half a byte": (binary(0.5, b"1234"), (400, 500), ""),
    "bytes after the last tensor": (binary(16, bytes(17)), (400,), "unexpected additional input data"),
    "a tensor smaller than its shape": (binary(12, bytes(12)), (400,), "input byte size mismatch"),
    # Shapes.
    "a negative dimension": (one('"datatype":"FP32","shape":[-1,4],"data":[1,2,3,4]'), (400, 500), "'shape'"),
    "a shape of 2^63 elements": (
        one('"datatype":"FP32","shape":[4294967296,2147483648],"data":[1]'), (400,), "INPUT0"),
    "a shape whose product wraps to zero": (
        one('"datatype":"FP32","shape":[4294967296,4294967296],"data":[]'), (400,), "invalid shape for input 'INPUT0'"),
    "a shape whose byte size overflows": (
        one('"datatype":"FP32","shape":[1,4611686018427387904],"data":[1]'), (400,), "overflow for input 'INPUT0'"),
    "a dimension beyond 64 bits": (one('"datatype":"FP32","shape":[18446744073709551617],"data":[1]'), (400, 500), ""),
    "a fractional dimension": (one('"datatype":"FP32","shape":[1.5,2],"data":[1,2,3]'), (400, 500), "'shape'"),
    "a dimension that is text": (one('"datatype":"FP32","shape":["1",2],"data":[1,2]'), (400, 500), "'shape'"),
    "a shape that is a number": (one('"datatype":"FP32","shape":4,"data":[1,2,3,4]'), (400, 500), "'shape'"),
    "a thousand dimensions": (one('"datatype":"FP32","shape":%s,"data":[1]' % ([1] * 1000)), (400,), "shape for input"),
    "a JSON tensor over the input limit": (
        one('"datatype":"FP32","shape":[1,%d],"data":[1]' % MIB), (400,), "--http-max-input-size"),
    "a binary shape of 2^62 elements without data": (binary(0, b"", "[2147483648,2147483648]"), (400,), ""),
    # Counts and values.
    "fewer numbers than the shape says": (one('"datatype":"FP32","shape":[1,4],"data":[1,2,3]'), (400, 500), "hape does not match"),
    "more numbers than the shape says": (
        one('"datatype":"FP32","shape":[1,4],"data":[1,2,3,4,5]'), (400, 500), "Shape does not match"),
    "NaN among integers": (first(data=[float("nan")] + [1] * 15), (400, 500), "'data'"),
    "NaN as text among floats": (one('"datatype":"FP32","shape":[1,1],"data":["NaN"]'), (400, 500), "'data'"),
    "a number without digits": (one('"datatype":"FP32","shape":[1,1],"data":[-]'), (400, 500), "failed to parse"),
    "a number that begins with zero": (one('"datatype":"FP32","shape":[1,1],"data":[01]'), (400, 500), "failed to parse"),
    "a number of a hundred thousand digits": (
        one('"datatype":"FP32","shape":[1,1],"data":[%s]' % ("1" * 100_000)), (200, 400, 500), ""),
    "an exponent out of all range": (
        one('"datatype":"FP32","shape":[1,1],"data":[1e999999999999]'), (200, 400, 500), ""),
    "data that is an object": (one('"datatype":"FP32","shape":[1,1],"data":{"a":1}'), (400, 500), "'data'"),
    "data that is null": (one('"datatype":"FP32","shape":[1,1],"data":null'), (400, 500), ""),
    "an unpaired surrogate": (
        one('"datatype":"BYTES","shape":[1,1],"data":["\\ud800"]', model="identity_bytes"), (200, 400, 500), ""),
    "an escape that does not exist": (
        one('"datatype":"BYTES","shape":[1,1],"data":["\\q"]', model="identity_bytes"), (400, 500), "failed to parse"),
    "bytes that are no UTF-8": (
        request("/v2/models/identity_bytes/infer", b'{"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[1,1],"data":["\xff\xfe"]}]}'),
        (200, 400, 500), ""),
    "a string that claims four gigabytes": (
        binary(8, b"\xff\xff\xff\xffabcd", "[1,1]", "BYTES", "identity_bytes"), (400, 500), "incomplete string data"),
    "a string length that is cut": (
        binary(3, b"\x01\x00\x00", "[1,1]", "BYTES", "identity_bytes"), (400,), "incomplete string length"),
    "a million strings that are not there": (
        binary(4, bytes(4), "[1000,1000]", "BYTES", "identity_bytes"), (400,), "string elements"),
    # Structure.
    "an open brace": (framed(b"{"), (400, 500), "failed to parse"),
    "nothing but spaces": (framed(b" " * 1000), (400, 500), "failed to parse"),
    "text after the JSON": (framed(simple() + b"{}"), (400, 500), "failed to parse"),
    "data nested 250,000 deep": (
        one('"datatype":"FP32","shape":[1,1],"data":' + nested(250_000)), (400,), "nesting depth"),
    "data nested 250,000 deep and never closed": (
        one('"datatype":"FP32","shape":[1,1],"data":' + nested(250_000, False)), (400, 500), ""),
    "the index asked with 250,000 levels": (
        request(INDEX, b'{"ready":' + nested(250_000).encode() + b"}"), (400,), "Invalid value for 'ready'"),
    "objects nested 100,000 deep": (
        request(INDEX, b'{"a":' * 100_000 + b"1" + b"}" * 100_000), (200, 400), ""),
    "parameters nested 100,000 deep": (
        framed(b'{"parameters":{"x":' + nested(100_000).encode() + b"}," + simple()[1:]), (400, 500), ""),
    "an input given twice": (first(name="INPUT1"), (400,), "already exists in request"),
    "an output asked for twice": (
        framed(simple(outputs=[{"name": "OUTPUT0"}] * 2)), (200, 400), ""),
    "ten thousand inputs": (framed(many(10_000, "inputs")), (400,), "expected 2 inputs but got 10000"),
    "ten thousand outputs": (framed(many(10_000, "outputs")), (400,), "unexpected inference output 'X0'"),
    "ten thousand parameters": (framed(simple(parameters={f"p{i}": i for i in range(10_000)})), (200, 400), ""),
    "the same key a thousand times": (
        framed(b"{" + b'"id":"1",' * 1000 + simple()[1:]), (200, 400, 500), ""),
    "JSON over the input limit": (
        framed(b'{"id":"' + b"x" * (MAX_INPUT + 10) + b'"}'), (400,),
        f"exceeds the maximum allowed input size of {MAX_INPUT} bytes"),
    "more classes than 32 bits": (
        framed(simple(outputs=[{"name": "OUTPUT0", "parameters": {"classification": 2**40}}])), (200, 400, 500), ""),
    "fewer classes than none": (
        framed(simple(outputs=[{"name": "OUTPUT0", "parameters": {"classification": -1}}])), (400, 500), "classification"),
    # Chunks.
    "seventy thousand chunks of one byte": (
        framed(chunked(b" " * 70_000, 1), Transfer_Encoding="chunked"), (400,),
        "Chunked request body exceeds maximum of 65536 non-empty chunks"),
    "a chunk size that is no number": (framed(b"zz\r\nab\r\n", Transfer_Encoding="chunked"), (CLOSED, 400), ""),
    "a chunk of 2^63 bytes": (
        framed(b"7fffffffffffffff\r\nab\r\n", Transfer_Encoding="chunked"), (CLOSED, 400, 413), ""),
    "a chunk size of a thousand digits": (
        framed(b"1" * 1000 + b"\r\nab\r\n", Transfer_Encoding="chunked"), (CLOSED, 400, 413), ""),
    "chunks over the body limit": (
        framed(chunked(b" " * (MAX_BODY + 100_000), 65536), Transfer_Encoding="chunked"), (400, 413), "http-max-"),
    "a chunk that does not end where it said": (
        framed(b"3\r\nabcdef\r\n0\r\n\r\n", Transfer_Encoding="chunked"), (CLOSED, 400), ""),
    "an unknown transfer encoding": (framed(simple(), Transfer_Encoding="rot13"), (CLOSED, 400, 500, 501), ""),
    # Compression.
    "gzip that is none": (framed(b"not gzip at all", Content_Encoding="gzip"), (400,), ""),
    "gzip that is cut": (framed(GZIP[:-20], Content_Encoding="gzip"), (400,), ""),
    "deflate that is none": (framed(b"\x00\x01\x02", Content_Encoding="deflate"), (400,), ""),
    "deflate without its wrapper": (framed(zlib.compress(simple())[2:-4], Content_Encoding="deflate"), (200, 400), ""),
    "an empty gzip body": (framed(b"", Content_Encoding="gzip"), (400,), "nothing to be decompressed"),
    "64 MiB of nothing in 64 KB of gzip": (
        framed(BOMB, Content_Encoding="gzip"), (400,), "Decompressed data size exceeds the maximum allowed value"),
    "an unknown encoding": (framed(simple(), Content_Encoding="snappy"), (501,), "Unsupported compression type"),
    "an accept header of a thousand weights": (
        framed(simple(), Accept_Encoding=", ".join(["gzip;q=0.5"] * 300)), (200,), ""),
}  # fmt: skip


def spoken(sent: bytes) -> bytes:
    """Whole requests go as they are; bare bodies become a request to `simple`."""
    return sent if sent[:1] != b"{" else request(INFER, sent)


HELP = subprocess.run([server.BINARY, "serve", "--help"], capture_output=True, text=True).stdout


def assert_flags_exist(text: str) -> None:
    """An answer that names a flag names one that the server has."""
    for flag in re.findall(r"--[a-z][a-z-]+", text):
        assert f"{flag} " in HELP, f"{flag} is no flag of the server, but the answer names it: {text[:300]}"


@pytest.mark.parametrize("case", CASES)
def test_bad_requests_get_their_status_within_a_second(strict, case):
    sent, statuses, words = CASES[case]
    got = rawhttp.exchange(strict.http, spoken(sent))
    assert got.status in statuses, f"got {got.status} {got.text[:300]!r}, want one of {statuses}"
    assert got.seconds < 1, f"answered after {got.seconds:.2f} s"
    assert_flags_exist(got.text)
    if words and got.status != CLOSED:
        assert words in json.loads(got.body)["error"], f"got {got.text[:300]!r}, want {words!r} in it"


# A client that ends early: (what it sends before it closes its side, statuses that are right).
CUT: dict[str, tuple[bytes, tuple[int, ...]]] = {
    "nothing at all": (b"", (CLOSED,)),
    "half a request line": (b"GET /v2", (CLOSED, 400)),
    "half the headers": (b"GET /v2 HTTP/1.1\r\nHost: x\r\nA", (CLOSED, 400)),
    "half a body": (framed(simple()[:100], Content_Length=len(simple())), (CLOSED, 400)),
    "headers that promise a body": (framed(b"", Content_Length=1000), (CLOSED, 400)),
    "half a chunk": (framed(b"ff\r\nabc", Transfer_Encoding="chunked"), (CLOSED, 400)),
    "chunks without their end": (framed(b"3\r\nabc\r\n", Transfer_Encoding="chunked"), (CLOSED, 400)),
}


@pytest.mark.parametrize("case", CUT)
def test_truncated_requests_end_within_a_second(strict, case):
    sent, statuses = CUT[case]
    got = rawhttp.exchange(strict.http, sent, half_close=True)
    assert got.status in statuses and got.seconds < 1, got


# A client that dawdles: (the parts it sends, the seconds between them, the limit that must end it).
STALLS: dict[str, tuple[list[bytes], float, float]] = {
    "a client that says nothing": ([b""], 0, max(HEADER_SECS, IDLE_SECS)),
    "headers one byte at a time": ([bytes([b]) for b in b"GET /v2 HTTP/1.1\r\n" + b"X-A: b\r\n" * 20], 0.1, HEADER_SECS),
    "headers that stop": ([b"GET /v2 HTTP/1.1\r\nHost: x\r\n"], 0, HEADER_SECS),
    "a body that stops": ([framed(simple()[:100], Content_Length=len(simple()))], 0, BODY_SECS),
    "a body that never begins": ([framed(b"", Content_Length=1000)], 0, BODY_SECS),
    "chunks that stop": ([framed(b"3\r\nabc\r\n", Transfer_Encoding="chunked")], 0, BODY_SECS),
    "a body promised by Expect and never sent": (
        [framed(b"", Content_Length=1000, Expect="100-continue")], 0, BODY_SECS),
}  # fmt: skip


def test_dawdling_clients_are_cut_off_at_the_limit(strict):
    """All at once: each takes its limit, and together they take no longer."""
    with futures.ThreadPoolExecutor(len(STALLS)) as pool:
        calls = {
            case: pool.submit(rawhttp.exchange, strict.http, *parts, pause=pause)
            for case, (parts, pause, _) in STALLS.items()
        }
        got = {case: call.result(30) for case, call in calls.items()}
    for case, reply in got.items():
        limit = STALLS[case][2]
        assert_flags_exist(reply.text)
        assert reply.status in (CLOSED, 400, 408), f"{case}: got {reply.status} {reply.text!r}"
        # Generous, for machines with more to do; a client that is not cut off waits for 10 s.
        assert limit - 0.2 < reply.seconds < limit + 3, f"{case}: cut off after {reply.seconds:.1f} s, want {limit} s"


def test_an_idle_connection_is_closed_after_its_limit(strict):
    begin = time.monotonic()
    with rawhttp.connect(strict.http) as sock:
        sock.sendall(request("/v2/health/live", method="GET"))
        assert rawhttp.read_reply(sock, begin).status == 200
        idle = time.monotonic()
        assert sock.recv(10) == b""
    assert IDLE_SECS - 0.5 < time.monotonic() - idle < IDLE_SECS + 1.5


def test_a_client_that_does_not_read_is_dropped(strict):
    """Answers that nobody reads fill the socket; the server gives up at its limit and frees the connection."""
    ask = request("/v2/models/simple/config", method="GET") * 200
    with rawhttp.connect(strict.http) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(10)
        begin = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - begin < 10:
                sock.sendall(ask)
    assert time.monotonic() - begin < 10, "the server kept a client that never reads"


def test_pipelined_requests_are_answered_in_order(strict):
    count = 300
    parts = [request(INFER, simple(id=str(i))) for i in range(count)]
    with rawhttp.connect(strict.http) as sock:
        sock.sendall(b"".join(parts))
        file = sock.makefile("rb")
        for i in range(count):
            status = file.readline().split()[1]
            length = 0
            while (line := file.readline().strip()) != b"":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            assert status == b"200" and json.loads(file.read(length))["id"] == str(i)


def test_connections_beyond_the_limit_do_not_lock_others_out_for_good(strict):
    held = []
    try:
        for _ in range(MAX_CONNECTIONS * 2):
            held.append(rawhttp.connect(strict.http))
    except OSError:
        pass  # refused outright: as good
    for sock in held:
        sock.close()
    server.wait_until(lambda: clients.infer_json(strict.http, clients.simple_json()).status == 200, 3, "a free place")


def test_expect_continue_is_answered(strict):
    body = simple()
    with rawhttp.connect(strict.http) as sock:
        sock.sendall(request(INFER, headers={"Content-Length": len(body), "Expect": "100-continue"}))
        assert sock.recv(4096).startswith(b"HTTP/1.1 100 ")
        sock.sendall(body)
        assert rawhttp.read_reply(sock, time.monotonic()).status == 200


def test_http_1_0_is_answered_and_closed(strict):
    body = simple()
    head = f"POST {INFER} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with rawhttp.connect(strict.http) as sock:
        sock.sendall(head + body)
        reply = rawhttp.read_reply(sock, time.monotonic())
        assert reply.status == 200 and sock.recv(10) == b""
