"""The data types that tensors have: by their name in requests, in configurations and in numpy."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np


class DataType(enum.IntEnum):
    """A tensor's data type; the numbers are those of the model configuration."""

    BOOL = 1
    UINT8 = 2
    UINT16 = 3
    UINT32 = 4
    UINT64 = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FP16 = 10
    FP32 = 11
    FP64 = 12
    BYTES = 13
    BF16 = 14


# What numpy calls them. BF16 has no type there: such tensors are handed on as
# uint16 with the name "BF16" beside them.
NUMPY = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(np.object_),
    "BF16": np.dtype(np.uint16),
}

_NAMES = {dtype: name for name, dtype in NUMPY.items() if name != "BF16"}


def of_numpy(dtype: np.dtype) -> str | None:
    """The name of a numpy type, or None where tensors cannot have it."""
    if dtype.kind == "S":
        return "BYTES"
    return _NAMES.get(dtype)


def config_name(name: str) -> str:
    """What a model configuration calls the type: TYPE_FP32."""
    return "TYPE_STRING" if name == "BYTES" else "TYPE_" + name


def to_bf16(array: np.ndarray) -> np.ndarray:
    """Floats as BF16, rounded to the nearest and to even on a tie: the bits, as uint16."""
    floats = np.ascontiguousarray(array, np.float32)
    bits = floats.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)  # a NaN must not round to infinity
    return np.where(np.isnan(floats), quiet, rounded).astype(np.uint16).reshape(np.shape(array))


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """The values of BF16 bits, as float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The array with every element as bytes: text is encoded, and anything else is its str()."""
    flat = [_element(v) for v in array.reshape(-1).tolist()]
    out = np.empty(len(flat), dtype=np.object_)
    out[:] = flat
    return out.reshape(array.shape)


def _element(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return str(value).encode("utf-8")
