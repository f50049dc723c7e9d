"""Small helpers over the official clients, the same for HTTP and gRPC."""

from __future__ import annotations

import json

import numpy as np
import tritonclient.grpc
import tritonclient.http

import models
import server

LIBRARIES = {"http": tritonclient.http, "grpc": tritonclient.grpc}
ONES = np.ones((1, 16), np.int32)
RAMP = np.arange(16, dtype=np.int32).reshape(1, 16)


def tensor(library, name: str, wire: str, array: np.ndarray, **more):
    """An input with its data; the http library takes binary_data."""
    made = library.InferInput(name, list(array.shape), wire)
    made.set_data_from_numpy(array, **more)
    return made


def pair(library, wire: str, a: np.ndarray, b: np.ndarray, **more) -> list:
    return [tensor(library, "INPUT0", wire, a, **more), tensor(library, "INPUT1", wire, b, **more)]


def simple_inputs(library, **more) -> list:
    return pair(library, "INT32", RAMP, ONES, **more)


def sample(wire: str, shape: tuple[int, ...], step: int = 1) -> np.ndarray:
    """Values of a type that show its edges: the extremes, and bytes that are no text."""
    type_ = models.TYPES[wire].numpy
    count = int(np.prod(shape))
    if wire == "BOOL":
        return (np.arange(count) % 3 == 0).reshape(shape)
    if wire == "BYTES":
        seeds = [b"", b"a", "h\u00e4\u00df\u20ac".encode(), b"x" * 300, b'quote " and \\', b"line\nend"]
        return np.array([seeds[i % len(seeds)] for i in range(count)], np.object_).reshape(shape)
    values = np.arange(count) * step % 100
    if np.issubdtype(type_, np.integer):
        array = values.astype(type_)
        array[0], array[-1] = np.iinfo(type_).max, np.iinfo(type_).min
        return array.reshape(shape)
    return (values * 0.5 - 3).astype(type_).reshape(shape)


def simple_json(**more) -> dict:
    """A JSON request for the model `simple`; a key set to None is left out."""
    request = {
        "id": "42",
        "inputs": [
            {"name": "INPUT0", "shape": [1, 16], "datatype": "INT32", "data": RAMP.ravel().tolist()},
            {"name": "INPUT1", "shape": [1, 16], "datatype": "INT32", "data": ONES.ravel().tolist()},
        ],
    }
    request.update(more)
    return {key: value for key, value in request.items() if value is not None}


def infer_json(address: str, request, model: str = "simple", headers=None, path: str = "") -> server.Answer:
    """Posts a request that may be anything: text, bytes, or a value to print as JSON."""
    body = request if isinstance(request, (str, bytes)) else json.dumps(request)
    return server.post(address, path or f"/v2/models/{model}/infer", body, headers)


def error_of(answer: server.Answer) -> str:
    return json.loads(answer.body)["error"]


def assert_simple(result) -> None:
    """Asserts that a client's result is that of simple_inputs."""
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), RAMP + ONES)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), RAMP - ONES)
