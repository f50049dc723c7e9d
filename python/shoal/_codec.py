"""How single values are encoded in the shared memory: types, strings, parameters."""

import struct

import numpy as np

# Data types by their numbers on the wire.
NAMES = (
    "INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "BYTES", "BF16",
)
BYTES = 13
BF16 = 14
DTYPES = tuple(
    None if d is None else np.dtype(d)
    for d in (None, "?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", None, "u2")
)
_CODE_OF = {(d.kind, d.itemsize): i for i, d in enumerate(DTYPES[:BF16]) if d is not None}

_OUTPUT = struct.Struct("<HBBIQQ")  # index, type, rank, where, offset, bytes
_PARAM = struct.Struct("<BBHI")  # kind, reserved, bytes of the name, bytes of the value
_U32 = struct.Struct("<I")

MAX_RANK = 32


class ResultError(ValueError):
    """A handler's result does not fit the model's configuration."""


def prepare(name, array, datatype, declared):
    """Return an array in a form that can be copied to the server, and its type's number.
    Datatype is the type's name, None when the array says it all; declared is what
    the configuration has for the output."""
    d = array.dtype
    if array.ndim > MAX_RANK:
        raise ResultError("output '%s' has %d dimensions, and at most %d are allowed" % (name, array.ndim, MAX_RANK))
    if d.kind in "OSU":
        return array, BYTES
    if d.name == "bfloat16":
        return array.view(np.uint16), BF16
    bits = datatype == "BF16" or (datatype is None and declared == BF16)
    if bits and d == np.uint16:
        return array, BF16
    if bits and d == np.float32:
        return bfloat16_bits(array), BF16
    code = _CODE_OF.get((d.kind, d.itemsize))
    if code is None:
        raise ResultError(
            "output '%s' is an array of %s, which inference answers cannot carry; convert it to %s"
            % (name, d, NAMES[declared])
        )
    return (array if d.isnative else array.astype(d.newbyteorder("="))), code


def unknown_output(name, names):
    """The error text for an output that the model does not have."""
    return "output '%s' is not one of the model's outputs: %s" % (name, ", ".join("'%s'" % n for n in names))


def bfloat16_bits(array):
    """Round float32 to bfloat16, to even on a tie, and return the bits."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32).reshape(array.shape)
    rounded = ((bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1).astype(np.uint32))) >> 16).astype(np.uint16)
    quiet = ((bits >> 16) | 0x40).astype(np.uint16)  # a NaN must not round to infinity
    return np.where(np.isnan(array), quiet, rounded)


def read_bytes(memory, offset, shape):
    """Return the strings that begin at offset as an array of bytes objects."""
    count = 1
    for d in shape:
        count *= d
    out = np.empty(count, np.object_)
    unpack = _U32.unpack_from
    for i in range(count):
        end = offset + 4 + unpack(memory, offset)[0]
        out[i] = memory[offset + 4 : end]
        offset = end
    return out.reshape(shape)


def write_bytes(array):
    """Return an array of strings in their encoding: each after its length."""
    parts = []
    pack = _U32.pack
    for x in array.reshape(-1).tolist():
        if type(x) is not bytes:
            x = _encoded(x)
        parts.append(pack(len(x)))
        parts.append(x)
    return b"".join(parts)


def _encoded(x):
    if isinstance(x, (bytes, bytearray, memoryview)):
        return bytes(x)
    return str(x).encode("utf-8")


def pack_output(index, code, offset, size, shape):
    return _OUTPUT.pack(index, code, len(shape), 0, offset, size) + struct.pack("<%dq" % len(shape), *shape)


def pack_params(parameters):
    """Pack response parameters: strings, whole numbers, floats and booleans."""
    parts = []
    for key, value in parameters.items():
        if isinstance(value, (bool, np.bool_)):
            kind, data = 4, bytes([bool(value)])
        elif isinstance(value, (int, np.integer)):
            if not -(1 << 63) <= value < 1 << 63:
                raise ResultError("parameter '%s' is %d, which does not fit 64 bits" % (key, value))
            kind, data = 1, struct.pack("<q", value)
        elif isinstance(value, (float, np.floating)):
            kind, data = 3, struct.pack("<d", value)
        elif isinstance(value, (str, bytes)):
            kind, data = 0, value.encode("utf-8") if isinstance(value, str) else value
        else:
            raise ResultError(
                "parameter '%s' is of type %s; str, int, float and bool can be carried" % (key, type(value).__name__)
            )
        name = str(key).encode("utf-8")
        if len(name) > 0xFFFF:
            raise ResultError("a parameter's name has %d bytes, and at most 65535 are allowed" % len(name))
        parts.append(_PARAM.pack(kind, 0, len(name), len(data)) + name + data)
    return b"".join(parts)


class Extra:
    """A request's properties besides its tensors."""

    __slots__ = ("id", "correlation_id", "flags", "priority", "timeout", "parameters", "wanted", "trace")

    def __init__(self):
        self.id = ""
        self.correlation_id = 0
        self.flags = 0
        self.priority = 0
        self.timeout = 0
        self.parameters = {}
        self.wanted = None
        self.trace = None  # of a traced request: its traceparent, or an empty string


_ITEM = struct.Struct("<IBBHI")  # request, tag, kind, bytes of the name, bytes of the value
_TAG_ID, _TAG_PRIORITY, _TAG_TIMEOUT, _TAG_SEQUENCE, _TAG_SEQUENCE_TEXT, _TAG_FLAGS, _TAG_WANTED, _TAG_PARAM, _TAG_TRACE = range(1, 10)


def read_extras(data, requests, outputs):
    """Return an Extra for each request."""
    extras = [Extra() for _ in range(requests)]
    at = 0
    while at < len(data):
        i, tag, kind, name_size, size = _ITEM.unpack_from(data, at)
        at += _ITEM.size
        name = data[at : at + name_size].decode("utf-8", "replace")
        at += name_size
        value = data[at : at + size]
        at += size
        e = extras[i]
        if tag == _TAG_ID:
            e.id = value.decode("utf-8", "replace")
        elif tag == _TAG_PRIORITY:
            e.priority = int.from_bytes(value, "little")
        elif tag == _TAG_TIMEOUT:
            e.timeout = int.from_bytes(value, "little")
        elif tag == _TAG_SEQUENCE:
            e.correlation_id = int.from_bytes(value, "little")
        elif tag == _TAG_SEQUENCE_TEXT:
            e.correlation_id = value.decode("utf-8", "replace")
        elif tag == _TAG_FLAGS:
            e.flags = value[0]
        elif tag == _TAG_WANTED:
            e.wanted = [outputs[n] for n in struct.unpack("<%dH" % (size // 2), value)]
        elif tag == _TAG_PARAM:
            e.parameters[name] = _value(kind, value)
        elif tag == _TAG_TRACE:
            e.trace = value.decode("ascii")
    return extras


def _value(kind, value):
    if kind == 1:
        return int.from_bytes(value, "little", signed=True)
    if kind == 2:
        return int.from_bytes(value, "little")
    if kind == 3:
        return struct.unpack("<d", value)[0]
    if kind == 4:
        return value != b"\0"
    return value.decode("utf-8", "replace")
