"""How a call and its answer lie in a session's memory, and the messages on its socket.

internal/protocol/session/wire.go has the formats of the other end.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Mapping, Sequence

import numpy as np

from shoal import _codec, _dtypes
from shoal._client import InferenceError

VERSION = 1

HELLO, ROOM, CANCEL, WAKE = 1, 2, 3, b"\x04\0\0\0"
WELCOME, REGION, REFUSED, ANSWERS = 65, 66, 67, 68
MOST = 1 << 17  # bytes of a message

PAGE = 4096
# Indexes of 32-bit words in the client's page and in the server's.
TAIL, RING = 0, 16
POLLING, BUSY, ANSWERED = 0, 1, 16
SLEEPS, LOOP = 1, 2

_ALIGN = 64
_LARGE = 1 << 17  # bytes of inputs that begin on a page, so that a worker can map them
IN_HEAD = 8  # call u32, bytes of the table u32
_TABLE = struct.Struct("<HHHHQQ")  # inputs, wanted outputs, parameters, bytes of the id, priority, timeout in microseconds
_TENSOR = struct.Struct("<BBHQQ")  # type, rank, bytes of the name, offset, bytes
OUT_HEAD = struct.Struct("<IIIHHq")  # call, error, bytes of the table, outputs, parameters, the model's version
_PARAM = struct.Struct("<BBHI")
_MOST_TABLE = 1 << 16
_CODES = {name: i for i, name in enumerate(_codec.NAMES)}
_ERRORS = ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS",
           "CANCELLED", "DEADLINE_EXCEEDED", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED")  # fmt: skip


class SessionError(InferenceError):
    """A call over a session failed. The attribute code says how: INVALID_ARG, UNAVAILABLE, ..."""

    def __init__(self, message: str, code: str = "UNAVAILABLE"):
        super().__init__(message)
        self.code = code


class ServerGone(SessionError):
    """The server ended, or closed the session."""


def error(code: int, text: bytes) -> SessionError:
    """The error that the server sent."""
    return SessionError(text.decode("utf-8", "replace"), _ERRORS[min(code, len(_ERRORS) - 1)])


def aligned(n: int, to: int = _ALIGN) -> int:
    return (n + to - 1) & -to


class Prepared:
    """An input as it can be copied: the array, its type's number, its bytes, and for strings their encoding."""

    __slots__ = ("name", "array", "code", "size", "data", "given")

    def __init__(self, name: str, value: Any, datatype: str):
        self.name, self.data = name, None
        array = value if isinstance(value, np.ndarray) else np.asarray(value, dtype=_wanted(datatype))
        if datatype == "BF16" and array.dtype != np.uint16:
            array = _dtypes.to_bf16(array) if array.dtype.name != "bfloat16" else array.view(np.uint16)
        self.array = array
        self.given = array is value  # arrays like it need no conversion before they are copied
        if array.dtype.kind in "OSU":
            self.data, self.given = _codec.write_bytes(array), False
            self.code, self.size = _codec.BYTES, len(self.data)
            return
        declared = _CODES.get(datatype)
        if declared is not None and declared != _codec.BYTES:
            dtype = _codec.DTYPES[declared]
            assert dtype is not None
            if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
                raise TypeError(f"input '{name}' is an array of {array.dtype}, and the model expects {datatype}")
            self.code, self.size = declared, array.size * dtype.itemsize
            return
        found = _dtypes.of_numpy(array.dtype)
        if found is None:
            raise TypeError(f"input '{name}' is an array of {array.dtype}, which requests cannot carry")
        self.code, self.size = _CODES[found], array.nbytes


def _wanted(datatype: str) -> Any:
    """The type for a value that is no array."""
    if datatype in ("", "BYTES", "BF16"):
        return None if datatype != "BF16" else np.float32
    return _dtypes.NUMPY.get(datatype)


def table(inputs: Sequence[Prepared], options: tuple[Any, ...], parameters: Mapping[str, Any] | None) -> tuple[bytes, list[int], int]:
    """The table of a call, the places of its inputs, and the bytes of all."""
    priority, timeout, id, outputs = options
    told = id.encode()
    packed = _codec.pack_params(parameters) if parameters else b""
    names = [i.name.encode() for i in inputs]
    wanted = [struct.pack("<H", len(name)) + name for name in (o.encode() for o in outputs)]
    length = _TABLE.size + len(told) + len(packed) + sum(map(len, wanted))
    length += sum(_TENSOR.size + 8 * i.array.ndim + len(n) for i, n in zip(inputs, names))
    if length > _MOST_TABLE:
        raise SessionError(f"what the call says besides its tensors has {length} bytes, and at most {_MOST_TABLE} are allowed", "INVALID_ARG")
    at = aligned(IN_HEAD + length)
    entries, places = [], []
    for i, name in zip(inputs, names):
        shape = i.array.shape
        if i.size >= _LARGE:
            at = aligned(at, PAGE)
        entries.append(_TENSOR.pack(i.code, len(shape), len(name), at, i.size) + struct.pack(f"<{len(shape)}q", *shape) + name)
        places.append(at)
        at = aligned(at + i.size)
    micros = 0 if timeout is None else max(1, math.ceil(timeout * 1e6))
    head = _TABLE.pack(len(inputs), len(wanted), len(parameters or ()), len(told), priority, micros)
    return b"".join([head, told, *entries, *wanted, packed]), places, at


def outputs(table: bytes, count: int) -> tuple[list[tuple[str, int, tuple[int, ...], int]], int]:
    """The name, type, shape and offset of each output, and where the parameters begin."""
    entries = []
    at = 0
    for _ in range(count):
        kind, rank, name, offset, _ = _TENSOR.unpack_from(table, at)
        at += _TENSOR.size
        shape = struct.unpack_from(f"<{rank}q", table, at)
        at += 8 * rank
        entries.append((table[at : at + name].decode("utf-8", "replace"), kind, shape, offset))
        at += name
    return entries, at


def params(table: bytes, at: int, count: int) -> dict[str, Any]:
    found = {}
    for _ in range(count):
        kind, _, name, size = _PARAM.unpack_from(table, at)
        at += _PARAM.size
        found[table[at : at + name].decode("utf-8", "replace")] = _codec._value(kind, table[at + name : at + name + size])
        at += name + size
    return found
