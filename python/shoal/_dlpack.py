"""DLPack capsules for tensors in host memory, for all types including BF16, which numpy does not have."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np

from shoal import _dtypes

CPU, CUDA, CUDA_HOST = 1, 2, 3


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

_CODES = {"BOOL": (6, 8), "BF16": (4, 16), "FP16": (2, 16), "FP32": (2, 32), "FP64": (2, 64)}
for _bits in (8, 16, 32, 64):
    _CODES[f"INT{_bits}"] = (0, _bits)
    _CODES[f"UINT{_bits}"] = (1, _bits)
_NAMES = {code: name for name, code in _CODES.items()}

_api = ctypes.pythonapi
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]

# A capsule keeps its name's address.
_NAME, _USED = b"dltensor", b"used_dltensor"


def export(array: np.ndarray, datatype: str) -> Any:
    """A capsule named "dltensor" over the array's memory; the array lives until it is given up.

    The capsule is numpy's, made for an unsigned type of the same width, and is then
    told the real one. One of our own would end in Python code, which must not run
    while an exception is on its way, and capsules often end just then.
    """
    code, bits = _CODES[datatype]
    carrier = array.view(f"u{bits // 8}")
    if not carrier.flags.writeable:
        carrier = carrier.copy()  # numpy exports no others
    capsule = carrier.__dlpack__()
    managed = ctypes.cast(_api.PyCapsule_GetPointer(capsule, _NAME), ctypes.POINTER(_Managed))
    managed.contents.tensor.dtype = _Type(code, bits, 1)
    return capsule


class NotContiguous(ValueError):
    """The tensor is not contiguous in C order."""


class UnknownDevice(ValueError):
    """The tensor is on a device that cannot be read."""


def take(capsule: Any) -> tuple[np.ndarray, str]:
    """Takes ownership of a capsule's content: the array, and the name of its type.

    Memory of a GPU is copied to the host; host memory is used where it is, and
    given up when nothing refers to the array any more.
    """
    managed = ctypes.cast(_api.PyCapsule_GetPointer(capsule, _NAME), ctypes.POINTER(_Managed))
    tensor = managed.contents.tensor
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    name = _NAMES.get((tensor.dtype.code, tensor.dtype.bits))
    if name is None or tensor.dtype.lanes != 1:
        raise TypeError(f"DLPack type code {tensor.dtype.code} with {tensor.dtype.bits} bits is not supported.")
    if tensor.strides and not _contiguous(shape, [tensor.strides[i] for i in range(tensor.ndim)]):
        raise NotContiguous
    dtype = _dtypes.NUMPY[name]
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    address = (tensor.data or 0) + tensor.byte_offset
    if tensor.device.type == CUDA:
        memory = _from_gpu(address, size, tensor.device.id)
    elif tensor.device.type in (CPU, CUDA_HOST):
        memory = (ctypes.c_char * size).from_address(address) if size else bytearray()
    else:
        raise UnknownDevice(str(tensor.device.type))
    _api.PyCapsule_SetName(capsule, _USED)
    array = np.frombuffer(memory, dtype=dtype).reshape(shape)
    if tensor.device.type == CUDA or not size:
        _release(managed)
    else:
        weakref.finalize(memory, _release, managed)
    return array, name


def _release(managed) -> None:
    if managed.contents.deleter:
        managed.contents.deleter(managed)


def _contiguous(shape: tuple[int, ...], strides: list[int]) -> bool:
    if 0 in shape:
        return True
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _from_gpu(address: int, size: int, device: int) -> bytearray:
    """Copies memory of a GPU through the driver, which every framework that uses one has loaded."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise UnknownDevice(f"CUDA device {device}, but the driver is missing: {error}") from error
    context = ctypes.c_void_p()
    handle = ctypes.c_int()
    memory = (ctypes.c_char * size)()
    for step, code in (
        ("cuInit", lambda: driver.cuInit(0)),
        ("cuDeviceGet", lambda: driver.cuDeviceGet(ctypes.byref(handle), device)),
        ("cuDevicePrimaryCtxRetain", lambda: driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle)),
        ("cuCtxPushCurrent", lambda: driver.cuCtxPushCurrent_v2(context)),
        ("cuMemcpyDtoH", lambda: driver.cuMemcpyDtoH_v2(memory, ctypes.c_uint64(address), ctypes.c_size_t(size))),
        ("cuCtxPopCurrent", lambda: driver.cuCtxPopCurrent_v2(ctypes.byref(context))),
        ("cuDevicePrimaryCtxRelease", lambda: driver.cuDevicePrimaryCtxRelease_v2(handle)),
    ):
        result = code()
        if result != 0:
            raise RuntimeError(f"copy of {size} bytes from CUDA device {device}: {step} gave error {result}")
    return bytearray(memory)
