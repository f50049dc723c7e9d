"""The rows of archives' models, and the context that handlers get."""

import random
import struct
import types

import pytest
from shoal import _archive_context, _archive_metrics, _archive_rows
from shoal._archive_rows import MAGIC, Parser


def packed(parts, headers=(), id=b"an-id"):
    """A request as the server packs it."""
    block = b"".join(struct.pack("<HI", len(k), len(v)) + k + v for k, v in headers)
    row = MAGIC + struct.pack("<HHHHI", len(id), len(headers), len(parts), 0, len(block)) + id + block
    for name, kind, value in parts:
        row += struct.pack("<IHH", len(value), len(name), len(kind)) + name + kind + value
    return row


def test_a_request_has_its_parts_headers_and_id():
    row = packed([(b"body", b"application/json", b'{"a": 1}'), (b"t", b"text/plain", "hé".encode()), (b"b", b"", b"\xff")], [(b"Host", b"h")])
    asked = Parser(True).parse(memoryview(row))
    assert asked.data == {"body": {"a": 1}, "t": "hé", "b": bytearray(b"\xff")}
    assert (asked.id, asked.packed) == ("an-id", True)
    assert dict(asked.headers) == {"body": {"content-type": "application/json"}, "t": {"content-type": "text/plain"}, "b": {"content-type": ""}, "Host": "h"}
    assert asked.headers.get("HOST") == "h" and asked.headers["host"] == "h"


def test_nothing_is_decoded_when_that_is_off():
    assert Parser(False).parse(memoryview(packed([(b"body", b"text/plain", b"x")]))).data == {"body": bytearray(b"x")}


def test_json_that_cannot_be_parsed_stays_bytes():
    assert Parser(True).parse(memoryview(packed([(b"body", b"application/json", b"{")]))).data == {"body": bytearray(b"{")}


def test_a_row_of_a_kserve_client_is_its_body():
    asked = Parser(True).parse(memoryview(b"plain"))
    assert (asked.data, asked.packed, dict(asked.headers)) == ({"body": bytearray(b"plain")}, False, {})
    assert len(asked.id) == 36


def test_no_row_is_read_beyond_its_end():
    """A client may send what looks packed: it gets nothing of the rows behind its own."""
    rng = random.Random(1)
    good = packed([(b"body", b"text/plain", b"hello"), (b"x", b"", b"y" * 20)], [(b"A", b"1"), (b"B", b"2")])
    behind = memoryview(b"SECRET" * 100)
    for _ in range(3000):
        row = bytearray(good[: rng.randrange(len(good) + 1)])
        for _ in range(rng.randrange(4)):
            if len(row) > len(MAGIC):
                row[rng.randrange(len(MAGIC), len(row))] = rng.randrange(256)
        memory = memoryview(bytes(row) + bytes(behind))
        asked = Parser(True).parse(memory[: len(row)])
        assert asked.data is not None and isinstance(asked.id, str)
        assert b"SECRET" not in repr((asked.data, dict(asked.headers))).encode()


def test_answers_keep_status_phrase_headers_and_body():
    row = _archive_rows.answer(_archive_rows.REPLY, 201, "Made", {"A": "b"}, b"body")
    assert _archive_rows.unpacked(row) == b"body"
    assert _archive_rows.usual([b"a", b"bc"]) == _archive_rows.framed([_archive_rows.answer(_archive_rows.REPLY, 200, "", {}, b) for b in (b"a", b"bc")])
    failed = _archive_rows.unpacked(_archive_rows.error(404, "gone"))
    assert (failed.text, failed.code) == ("gone", "NOT_FOUND")


class Original:
    """A context as the originals' own packages have it: it reads _request_processor."""

    class Context:
        def __init__(self, model_name, model_dir, manifest, batch_size, gpu, version, **more):
            self.model_name, self.manifest = model_name, manifest
            self.request_ids = self.request_processor = None
            self._metrics = None

        @property
        def request_processor(self):
            return self._request_processor

        @request_processor.setter
        def request_processor(self, value):
            self._request_processor = value

        def get_request_header(self, idx, key):
            return self._request_processor[idx].get_request_property(key)

        def set_response_status(self, code=200, phrase="", idx=0):
            if self._request_processor is not None and self._request_processor[idx] is not None:
                self._request_processor[idx].report_status(code, reason_phrase=phrase)

    class RequestProcessor:
        def get_request_property(self, key):
            return self._request_header.get(key)

        def report_status(self, code, reason_phrase=None):
            self._status_code, self._reason_phrase = code, reason_phrase


@pytest.mark.parametrize("module", [Original, None])
def test_a_context_is_made_as_far_as_it_is_asked_for(module, monkeypatch):
    if module is None:
        import sys

        from conftest import ROOT

        monkeypatch.syspath_prepend(str(ROOT / "python" / "handlers"))
        for name in [n for n in sys.modules if n.split(".")[0] == "mms"]:
            del sys.modules[name]
        import mms.context as module
    made = _archive_context._lazy(types.SimpleNamespace(Context=module.Context, RequestProcessor=module.RequestProcessor), _archive_metrics.MetricsStore)
    context = made("m", "/dir", None, 2, None, "1")
    asked = [Parser(True).parse(memoryview(packed([(b"body", b"", b"x")], [(b"Who", b"%d" % i)], id=b"id%d" % i))) for i in range(2)]
    context.begin(asked)
    assert context.untouched
    assert context.get_request_header(1, "who") == "1"
    context.set_response_status(418, "teapot", 1)
    assert not context.untouched
    assert [(p._status_code, p._reason_phrase) for p in context.request_processor] == [(200, None), (418, "teapot")]
    assert context.request_ids == {0: "id0", 1: "id1"}
    context.metrics.add_counter("Seen", 2)
    assert "Seen.Count:2|#ModelName:m,Level:Model|#hostname:" in str(context.metrics.store[0])
    context.begin(asked)
    assert context.untouched and context.metrics.store == []
