"""Tensor of triton_python_backend_utils."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal import _dlpack, _dtypes


class TritonModelException(Exception):
    """Raised by the functions of this module when they are misused."""


_new = object.__new__
_KNOWN = {dtype: name for name, dtype in _dtypes.NUMPY.items() if name != "BF16"}


class Tensor:
    """A named tensor: an input of a request or an output of a response."""

    __slots__ = ("_array", "_datatype", "_name", "__weakref__")

    def __init__(self, name: str, numpy_array: np.ndarray):
        if not isinstance(numpy_array, np.ndarray):
            raise TypeError(
                f"Tensor '{name}' wants a numpy.ndarray, got {type(numpy_array).__name__}; np.array(value, dtype) makes one"
            )
        if type(name) is not str or not name:
            _check_name(name)
        dtype = numpy_array.dtype
        datatype = _KNOWN.get(dtype) or _dtypes.of_numpy(dtype)
        if datatype is None:
            raise TritonModelException("NumPy dtype is not supported.")
        self._name = name
        self._datatype = datatype
        self._array = numpy_array if numpy_array.flags.c_contiguous else np.ascontiguousarray(numpy_array)

    @staticmethod
    def _of(name: str, array: np.ndarray, datatype: str) -> Tensor:
        """A tensor whose name and type are known to be right."""
        tensor = _new(Tensor)
        tensor._name = name
        tensor._array = array
        tensor._datatype = datatype
        return tensor

    def name(self) -> str:
        """The tensor's name."""
        return self._name

    def as_numpy(self) -> np.ndarray:
        """The tensor as a numpy array, without a copy. Strings are an object array of bytes."""
        if self._datatype == "BF16":
            raise TritonModelException(
                "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."
            )
        return self._array

    def shape(self) -> list[int]:
        """The tensor's dimensions."""
        return list(self._array.shape)

    def triton_dtype(self) -> _dtypes.DataType:
        """The tensor's data type."""
        return _dtypes.DataType[self._datatype]

    def is_cpu(self) -> bool:
        """Whether the tensor is in the host's memory; here it always is."""
        return True

    def to_dlpack(self) -> Any:
        """A DLPack capsule over the tensor's memory."""
        if self._datatype == "BYTES":
            raise TritonModelException("DLPack does not have support for string tensors.")
        return _dlpack.export(self._array, self._datatype)

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        return self.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_dlpack.CPU, 0)

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        """A tensor over the memory of a DLPack capsule or of an object with __dlpack__, such as torch's."""
        _check_name(name)
        try:
            return Tensor._of(name, *_dlpack.take(_capsule(tensor)))
        except _dlpack.NotContiguous:
            raise TritonModelException(
                "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are supported."
            ) from None
        except _dlpack.UnknownDevice as error:
            raise TritonModelException(f"DLDevice type {error} is not support by Python backend.") from None


def _check_name(name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a tensor's name must be a str, got {type(name).__name__}")
    if name == "":
        raise TritonModelException("Tensor name cannot be an empty string.")


def _capsule(tensor: Any) -> Any:
    if type(tensor).__name__ == "PyCapsule":
        return tensor
    if not hasattr(tensor, "__dlpack__") or not hasattr(tensor, "__dlpack_device__"):
        raise TritonModelException(
            "Provided tensor is not supported. Tensor must be a DLPack capsule         or have `__dlpack__` and "
            "`__dlpack_device__` attributes"
        )
    if tensor.__dlpack_device__()[0] == _dlpack.CUDA:
        return tensor.__dlpack__(stream=1)  # waits for the default stream, on which the copy is made
    if isinstance(tensor, np.ndarray) and not tensor.flags.writeable:
        return _dlpack.export(np.ascontiguousarray(tensor), _dtypes.of_numpy(tensor.dtype) or "")  # numpy refuses these
    return tensor.__dlpack__()
