"""What model.py files of Triton's Python backend import, served by Shoal.

The names and their behaviour are those of Triton's module, so that a model.py
that runs there runs here unchanged.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from shoal import _dtypes
from shoal._pb_call import ResponseIterator, is_model_ready, load_model, unload_model
from shoal._pb_config import ModelConfig
from shoal._pb_host import Logger, Metric, MetricFamily, MetricKind
from shoal._pb_request import InferenceRequest, InferenceTrace, MemoryType, PreferredMemory
from shoal._pb_response import InferenceResponse, InferenceResponseSender, TritonError
from shoal._pb_tensor import Tensor, TritonModelException

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU
TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU

TRITON_STRING_TO_NUMPY = {
    _dtypes.config_name(name): bool if name == "BOOL" else dtype.type for name, dtype in _dtypes.NUMPY.items() if name != "BF16"
}

# The model's version folder; the worker sets it before it imports the model.
_model_dir = ""


def get_model_dir() -> str:
    """The folder of the model's file."""
    return _model_dir


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """The request's tensor of that name, or None."""
    return _named(inference_request.inputs(), name)


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """The response's tensor of that name, or None."""
    return _named(inference_response.output_tensors(), name)


def _named(tensors: list[Tensor], name: str) -> Tensor | None:
    for tensor in tensors:
        if tensor._name == name:
            return tensor
    return None


def get_input_config_by_name(model_config: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The properties of the input of that name in a configuration, or None."""
    return _described(model_config, "input", name)


def get_output_config_by_name(model_config: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The properties of the output of that name in a configuration, or None."""
    return _described(model_config, "output", name)


def _described(model_config: dict[str, Any], side: str, name: str) -> dict[str, Any] | None:
    for properties in model_config.get(side, ()):
        if properties["name"] == name:
            return properties
    return None


def using_decoupled_model_transaction_policy(model_config: dict[str, Any]) -> bool:
    """Whether a configuration makes the model decoupled: any number of responses to a request."""
    return model_config.get("model_transaction_policy", {}).get("decoupled", False)


def triton_string_to_numpy(triton_type_string: str) -> type:
    """The numpy type of a configuration's TYPE_FP32 and the like."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def triton_to_numpy_type(data_type: int) -> type | None:
    """The numpy type of a configuration's data type by its number, or None."""
    if data_type == _dtypes.DataType.BF16 or data_type not in _dtypes.DataType.__members__.values():
        return None
    return _dtypes.NUMPY[_dtypes.DataType(data_type).name].type


def numpy_to_triton_type(data_type: Any) -> int | None:
    """The number of a numpy type in configurations, or None."""
    name = _dtypes.of_numpy(np.dtype(data_type))
    return None if name is None else int(_dtypes.DataType[name])


def serialize_byte_tensor(input_tensor: np.ndarray) -> Any:
    """A string tensor as bytes on the wire: for each element its length, four bytes, and itself."""
    if input_tensor.size == 0:
        return ()
    if _dtypes.of_numpy(input_tensor.dtype) != "BYTES":
        return None
    elements = _dtypes.as_bytes(input_tensor).reshape(-1).tolist()
    return b"".join(part for e in elements for part in (struct.pack("<I", len(e)), e))


def deserialize_bytes_tensor(encoded_tensor: Any) -> np.ndarray:
    """The elements of the output of serialize_byte_tensor, as a flat object array of bytes."""
    view = memoryview(bytes(encoded_tensor))
    elements = []
    offset = 0
    while offset < len(view):
        (length,) = struct.unpack_from("<I", view, offset)
        offset += 4
        if offset + length > len(view):
            raise TritonModelException("Invalid bytes tensor data: string extends beyond buffer")
        elements.append(bytes(view[offset : offset + length]))
        offset += length
    out = np.empty(len(elements), dtype=np.object_)
    out[:] = elements
    return out


__all__ = [name for name in dir() if not name.startswith("_") and name not in ("annotations", "np", "struct", "Any")]
