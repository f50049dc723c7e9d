"""The rows of an archive's model: requests of Multi Model Server's and TorchServe's clients, and their answers.

A row of the model's one input is one request: its headers and parts, packed by the
server (envelope.go), or the plain bytes of a KServe client. A row of the output is
packed in the same way: status, headers and body. This module is hot: what a
handler may not ask for is made when it does.
"""

from __future__ import annotations

import json
import logging
import struct
import uuid
from typing import Any, Callable

MAGIC = b"\x00SHOAL\x02\n"  # begins a packed request, and the answer to one

_REQUEST = struct.Struct("<8sHHHxxI")  # magic, bytes of the id, headers, parts, bytes of the headers
_PAIR = struct.Struct("<HI")  # bytes of a header's name and value
_PART = struct.Struct("<IHH")  # bytes of a part's value, name and content type
_ANSWER = struct.Struct("<8sBHHH")  # magic, kind, status, bytes of the phrase, headers
_USUAL = struct.Struct("<I8sBHHH")  # the same after the bytes of the row
_U32 = struct.Struct("<I")

REPLY, ERROR, MORE = 0, 1, 2  # kinds of answers

_MAX_NAMES = 1000  # clients choose them


class Headers(dict):
    """Request headers under the names as they were sent; lookups ignore case."""

    def _fold(self, key: Any) -> Any:
        if isinstance(key, str):
            low = key.lower()
            for k in self:
                if k.lower() == low:
                    return k
        return key

    def __missing__(self, key: Any) -> Any:
        found = self._fold(key)
        if found is key or found not in self.keys():
            raise KeyError(key)
        return dict.__getitem__(self, found)

    def get(self, key: Any, default: Any = None) -> Any:
        """The header's value."""
        if dict.__contains__(self, key):
            return dict.__getitem__(self, key)
        found = self._fold(key)
        return dict.__getitem__(self, found) if dict.__contains__(self, found) else default


class Asked:
    """One request: the data for the handler; id and headers once somebody asks."""

    __slots__ = ("data", "_packed", "_id_size", "_count", "_parts", "_id", "_headers")

    @property
    def packed(self) -> bool:
        """Whether the answer is to be packed as well."""
        return self._packed is not None

    @property
    def id(self) -> str:
        """The request's id."""
        if self._id is None:
            self._id = str(uuid.uuid4()) if self._packed is None else self._packed[: self._id_size].decode("ascii", "replace")
        return self._id

    @property
    def headers(self) -> Headers:
        """The request's headers, and the content types of its parts."""
        if self._headers is None:
            made = self._headers = Headers((name, {"content-type": kind}) for name, kind in self._parts)
            raw, at = self._packed or b"", self._id_size
            for _ in range(self._count):
                if at + _PAIR.size > len(raw):
                    break  # the server did not pack it
                k, v = _PAIR.unpack_from(raw, at)
                at += _PAIR.size
                made[raw[at : at + k].decode("utf-8", "replace")] = raw[at + k : at + k + v].decode("utf-8", "replace")
                at += k + v
        return self._headers


class Parser:
    """Takes rows apart."""

    def __init__(self, decode: bool):
        self._decode = decode
        self._names: dict[bytes, tuple[str, str, Callable[[Any], Any]]] = {}

    def parse(self, row: memoryview) -> Asked:
        """The request in a row. Nothing of it refers to the row, whose memory is used again."""
        a = Asked()
        a._id = a._headers = None
        a._parts = []
        try:
            magic, a._id_size, a._count, parts, block = _REQUEST.unpack_from(row)
            if magic != MAGIC:
                return _plain(a, row)
            at = 20 + a._id_size + block
            a._packed = bytes(row[20:at])
            a.data = data = {}
            for _ in range(parts):
                size, n, t = _PART.unpack_from(row, at)
                key = bytes(row[at + 4 : at + 8 + n + t])
                name, kind, convert = self._names.get(key) or self._learn(key, n)
                at += 8 + n + t
                a._parts.append((name, kind))
                data[name] = convert(row[at : at + size])
                at += size
        except struct.error:  # a KServe client's
            return _plain(a, row)
        return a

    def _learn(self, key: bytes, n: int) -> tuple[str, str, Callable[[Any], Any]]:
        name, kind = key[4 : 4 + n].decode("utf-8", "replace"), key[4 + n :].decode("utf-8", "replace")
        convert: Callable[[Any], Any] = bytearray
        if self._decode and kind == "application/json":
            convert = _from_json
        elif self._decode and kind.startswith("text"):
            convert = _from_text
        if len(self._names) >= _MAX_NAMES:
            self._names.clear()
        found = self._names[key] = (name, kind, convert)
        return found


def _plain(a: Asked, row: memoryview) -> Asked:
    a._packed, a._id_size, a._count = None, 0, 0
    a._parts = []
    a.data = {"body": bytearray(row)}
    return a


def _from_json(value: memoryview) -> Any:
    raw = bytes(value)
    try:
        return json.loads(raw.decode("utf-8"))
    except ValueError as e:  # includes bytes that are not UTF-8
        logging.warning("a request has the content type application/json and cannot be parsed: %s", e)
        return bytearray(raw)


def _from_text(value: memoryview) -> Any:
    raw = bytes(value)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return bytearray(raw)


def usual(bodies: list[bytes]) -> bytes:
    """The rows of answers with status 200 and no headers, each after its length."""
    parts = []
    for body in bodies:
        parts.append(_USUAL.pack(_ANSWER.size + len(body), MAGIC, REPLY, 200, 0, 0))
        parts.append(body)
    return b"".join(parts)


def framed(rows: list[bytes]) -> bytes:
    """Rows, each after its length."""
    parts = []
    for row in rows:
        parts.append(_U32.pack(len(row)))
        parts.append(row)
    return b"".join(parts)


def answer(kind: int, code: int, phrase: Any, headers: dict[Any, Any], body: bytes) -> bytes:
    """The row of an answer."""
    text = str(phrase or "").encode("utf-8", "replace")
    parts = [_ANSWER.pack(MAGIC, kind, int(code), len(text), len(headers)), text]
    for k, v in headers.items():
        k, v = str(k).encode("utf-8", "replace"), str(v).encode("utf-8", "replace")
        parts += (_PAIR.pack(len(k), len(v)), k, v)
    parts.append(body)
    return b"".join(parts)


def error(code: int, text: str) -> bytes:
    """The row of an error."""
    return answer(ERROR, code if 100 <= code <= 65535 else 500, "", {}, text.encode("utf-8", "replace"))


class Failed:
    """The error of a request that was not packed."""

    def __init__(self, text: str, code: str):
        self.text, self.code = text, code


def unpacked(row: bytes) -> bytes | Failed:
    """An answer in the form for a KServe client: the body alone, or its error."""
    _, kind, code, phrase, headers = _ANSWER.unpack_from(row)
    at = _ANSWER.size + phrase
    for _ in range(headers):
        k, v = _PAIR.unpack_from(row, at)
        at += _PAIR.size + k + v
    body = row[at:]
    if kind != ERROR and code < 400:
        return body
    names = {404: "NOT_FOUND", 503: "UNAVAILABLE"}
    return Failed(body.decode("utf-8", "replace") or f"status {code}", names.get(code, "INVALID_ARG" if code < 500 else "INTERNAL"))
