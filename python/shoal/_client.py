"""A small client for the v2 protocol over HTTP, with numpy arrays and nothing to install."""

from __future__ import annotations

import http.client
import json
import struct
import threading
import urllib.parse
from typing import Any, Mapping

import numpy as np

from shoal import _dtypes


class InferenceError(Exception):
    """The server refused or failed a request."""

    def __init__(self, message: str, status: int = 0):
        super().__init__(message)
        self.status = status
        """The HTTP status, 0 when there was no answer."""


class Client:
    """Sends inference requests to a server. Many threads may use it; each has its own connection."""

    def __init__(self, url: str, timeout: float = 60):
        parts = urllib.parse.urlsplit(url if "//" in url else "http://" + url)
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or 8000
        self._timeout = timeout
        self._mine = threading.local()

    def infer(
        self, model: str, inputs: Mapping[str, Any], *, id: str = "", parameters: Mapping[str, Any] | None = None
    ) -> dict[str, np.ndarray]:
        """Sends arrays by input name and returns the outputs by name.

        Arrays have the shape that the model's metadata shows: for a model that is
        batched, rows along the first axis. Text may be str or bytes; text outputs
        are arrays of bytes. A pair (array, "BF16") sends floats in that type, which
        numpy has not; outputs of it come as float32.
        """
        header: dict[str, Any] = {"inputs": [], "parameters": {**(parameters or {}), "binary_data_output": True}}
        if id:
            header["id"] = id
        bodies = []
        for name, value in inputs.items():
            array, datatype = value if isinstance(value, tuple) and value[1:] == ("BF16",) else (value, "")
            entry, body = _encode(name, np.asarray(array), datatype)
            header["inputs"].append(entry)
            bodies.append(body)
        head = json.dumps(header).encode()
        path = "/v2/models/" + urllib.parse.quote(model, safe="/") + "/infer"
        sizes = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}
        status, headers, body = self._call("POST", path, b"".join([head, *bodies]), sizes)
        if status != 200:
            raise InferenceError(_message(body), status)
        return _decode(body, int(headers.get("Inference-Header-Content-Length") or len(body)))

    def ready(self) -> bool:
        """Whether the server reports that it and its models are ready."""
        try:
            return self._call("GET", "/v2/health/ready")[0] == 200
        except InferenceError:
            return False

    def get(self, path: str) -> Any:
        """The JSON answer to a GET of a path such as "/v2/models/mean/config"."""
        status, _, body = self._call("GET", path)
        if status != 200:
            raise InferenceError(_message(body), status)
        return json.loads(body)

    def _call(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None):
        for _ in range(2):
            kept = getattr(self._mine, "connection", None)
            connection = kept or http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
            try:
                connection.request(method, path, body, dict(headers or {}))
                response = connection.getresponse()
                answer = response.status, response.headers, response.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._mine.connection = None
                if kept and isinstance(error, (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)):
                    continue  # the server closed an idle connection: repeat the request
                raise InferenceError(f"no answer from {self._host}:{self._port}: {error or type(error).__name__}") from error
            self._mine.connection = None if response.will_close else connection
            return answer
        raise InferenceError(f"{self._host}:{self._port} closed two connections in a row")

    def close(self) -> None:
        """Closes this thread's connection."""
        connection = getattr(self._mine, "connection", None)
        if connection is not None:
            connection.close()
            self._mine.connection = None


def _encode(name: str, array: np.ndarray, datatype: str) -> tuple[dict[str, Any], bytes]:
    if datatype == "BF16":
        array = _dtypes.to_bf16(array)
    if array.dtype.kind == "U":
        array = array.astype(np.object_)
    datatype = datatype or _dtypes.of_numpy(array.dtype) or ""
    if not datatype:
        raise TypeError(f"input '{name}' is an array of {array.dtype}, which requests cannot carry")
    if datatype == "BYTES":
        elements = _dtypes.as_bytes(array).reshape(-1).tolist()
        body = b"".join(part for e in elements for part in (struct.pack("<I", len(e)), e))
    else:
        body = np.ascontiguousarray(array).tobytes()
    entry = {"name": name, "shape": list(array.shape), "datatype": datatype, "parameters": {"binary_data_size": len(body)}}
    return entry, body


def _decode(body: bytes, size: int) -> dict[str, np.ndarray]:
    outputs = {}
    at = size
    for entry in json.loads(body[:size]).get("outputs", []):
        length = entry.get("parameters", {}).get("binary_data_size")
        shape, dtype = entry["shape"], _dtypes.NUMPY[entry["datatype"]]
        if length is None:
            array = np.array(entry["data"], dtype=dtype)
        elif entry["datatype"] == "BYTES":
            array = _texts(body[at : at + length])
        else:
            array = np.frombuffer(body, dtype=dtype, count=length // dtype.itemsize, offset=at)
        if entry["datatype"] == "BF16":
            array = _dtypes.from_bf16(array)
        outputs[entry["name"]] = array.reshape(shape)
        at += length or 0
    return outputs


def _texts(data: bytes) -> np.ndarray:
    elements = []
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        elements.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    out = np.empty(len(elements), dtype=np.object_)
    out[:] = elements
    return out


def _message(body: bytes) -> str:
    try:
        return json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace") or "the server gave no reason"
