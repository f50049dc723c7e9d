"""Runs the handler of a model archive (.mar) of Multi Model Server or TorchServe, unchanged.

A row of the model's one input is one request of such a server: its headers and
parts, packed by the server (see envelope.go), or the plain bytes of a KServe client.
A row of the output is packed in the same way: status, headers and body.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import os
import re
import struct
import sys
import time
import uuid
from typing import Any

import numpy as np

from shoal import _faults

MAGIC = b"\x00SHOAL\x01\n"  # begins a packed request, and the answer to one

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_PAIR = struct.Struct("<HI")
_PART = struct.Struct("<HHI")
_ANSWER = struct.Struct("<BHHH")  # kind, status, bytes of the phrase, headers

_REPLY, _ERROR, _MORE = 0, 1, 2  # kinds of answers


def settings(init: dict[str, Any]) -> dict[str, Any]:
    """What the server has been told about the archive."""
    return json.loads(init["config"]["parameters"]["SHOAL_ARCHIVE"]["string_value"])


def load(init: dict[str, Any]) -> Handler:
    """Import the archive's handler."""
    told = settings(init)
    compat = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "handlers")
    if compat not in sys.path:
        sys.path.append(compat)
    model_dir = told["model_dir"]
    os.chdir(model_dir)
    os.environ.setdefault("TEMP", told.get("temp_dir", ""))
    sys.path.insert(0, model_dir)
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
    return Handler(told, init)


class LoadError(Exception):
    """The handler cannot be used."""


class Handler:
    """The worker's handler for one instance of an archive's model."""

    def __init__(self, told: dict[str, Any], init: dict[str, Any]):
        from shoal import _archive_context

        self._told = told
        self._torch = told["dialect"] == "torchserve"
        self._decode = told.get("decode", True)
        self._limit = told.get("max_response_size") or 0
        self._decoupled = bool((init.get("wire") or {}).get("decoupled"))
        self._name = told["model_name"]
        manifest = _read_json(os.path.join(told["model_dir"], "MAR-INF", "MANIFEST.json"))
        gpu = init.get("device_id", 0) if str(init.get("instance_kind", "")).endswith("GPU") else None
        self.context = _archive_context.new(told, manifest, gpu)
        self._metrics = _archive_context.metrics_of(self._torch)
        self._failure, self._processor = _archive_context.classes(self._torch)
        self._module = self._import(told["handler"])
        self._entry: Any = None

    def _import(self, handler: str) -> Any:
        path, _, function = handler.partition(":")
        self._function = function or "handle"
        folder, name = os.path.split(path)
        name = re.sub(r"\.py$", "", name)
        if folder:
            sys.path.insert(0, os.path.join(self._told["model_dir"], folder))
        if self._torch and not os.path.exists(os.path.join(self._told["model_dir"], folder, name + ".py")):
            try:
                return importlib.import_module("ts.torch_handler." + name)
            except ModuleNotFoundError as e:
                if e.name != "ts.torch_handler." + name:
                    raise
        return importlib.import_module(name)

    def describe(self) -> None:
        """The configuration is the server's own."""

    def start(self) -> None:
        """Load the model: initialize, or a first call of the function without data."""
        module, context = self._module, self.context
        context.metrics = self._metrics(context)
        if hasattr(module, self._function):
            self._entry = getattr(module, self._function)
            self._entry(None, context)
        else:
            classes = [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__]
            if len(classes) != 1:
                raise ValueError(f"Expected only one class in custom service code or a function entry point {classes}")
            service = classes[0]()
            service.context = context
            service.initialize(context)
            self._entry = service.handle
        envelope = self._told.get("envelope")
        if envelope:
            from shoal import _archive_envelopes

            self._entry = _archive_envelopes.wrap(envelope, self._entry)

    def execute(self, batch: Any) -> None:
        """Answer a batch with one call of the handler."""
        asked = [_parse(raw, self._decode) for raw in self._rows(batch)]
        context = self.context
        context.request_ids = {i: a.id for i, a in enumerate(asked)}
        context.request_processor = [self._processor(a.headers) for a in asked]
        context.metrics = self._metrics(context)
        if self._decoupled:
            context.cl_socket = _Sender(self, [r for r in batch.requests for _ in range(r.rows)], asked)
        answers = self._call([a.data for a in asked], context)
        answers = [a if q.packed else _plain(a) for a, q in zip(answers, asked)]
        if not self._decoupled and not any(isinstance(a, Failed) for a in answers):  # most batches; this path is hot
            batch.respond([("data", _column(answers))])
        else:
            self._respond(batch, answers)
        if self._told.get("metrics"):
            _flush_metrics(context, self._torch)

    def _rows(self, batch: Any) -> list[bytes]:
        """The rows of all requests, in order."""
        if self._decoupled:
            return [raw for r in batch.requests for raw in r.input("data").reshape(-1).tolist()]
        given = batch.input("data")
        if isinstance(given, list):
            return [raw for part in given for raw in part.reshape(-1).tolist()]
        return given.reshape(-1).tolist()

    def _respond(self, batch: Any, answers: list[Any]) -> None:
        """Answer the requests one by one."""
        at = 0
        for request in batch.requests:
            own = answers[at : at + request.rows]
            at += request.rows
            fault = next((a for a in own if isinstance(a, Failed)), None)
            if fault is not None:
                request.fail(fault.text, fault.code, **({"final": True} if self._decoupled else {}))
                continue
            if self._decoupled:
                request.respond([("data", _column(own))], final=True)
            else:
                request.respond([("data", _column(own))])

    def _call(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        """The packed answers of the handler to the requests."""
        count = len(data)
        begin = time.time()
        try:
            result = self._entry(data, context)
        except MemoryError:
            _log_fault()
            return [_error(507, "Out of resources")] * count
        except self._failure as e:
            _log_fault()
            return [_error(int(e.error_code), str(e.message))] * count
        except (SystemExit, KeyboardInterrupt, GeneratorExit):
            _log_fault()
            return [_error(500, "Worker died.")] * count
        except BaseException as e:
            _log_fault()
            if self._torch and "CUDA" in str(e):
                return [_error(507, "Out of resources")] * count
            return [_error(503, "Prediction failed")] * count
        if not isinstance(result, list):
            return [_error(503, "Invalid model predict output")] * count
        if len(result) != count:
            return [_error(503, "number of batch response mismatched")] * count
        context.metrics.add_time("PredictionTime", round((time.time() - begin) * 1000, 2), None, "ms")
        return [self.pack(i, value, _REPLY) for i, value in enumerate(result)]

    def pack(self, i: int, value: Any, kind: int) -> Any:
        """The answer of request i."""
        try:
            body = _encoded(value)
        except (TypeError, ValueError):
            _log_fault()
            return _error(503, "Unsupported model output data type.")
        if self._limit and len(body) > self._limit:
            text = f"the handler's answer has {len(body)} bytes, and at most {self._limit} are allowed; raise max_response_size"
            logging.error(text)
            return _error(500, text)
        p = self.context.request_processor[i]
        code, phrase, headers = p.get_response_status_code(), p.get_response_status_phrase() or "", p.get_response_headers()
        if kind == _REPLY and self._decoupled:
            headers = {**headers, "ts_stream_next": "false"} if "ts_stream_next" in headers else headers
        phrase = str(phrase).encode("utf-8", "replace")
        parts = [MAGIC, _ANSWER.pack(kind, int(code), len(phrase), len(headers)), phrase]
        for k, v in headers.items():
            k, v = str(k).encode("utf-8", "replace"), str(v).encode("utf-8", "replace")
            parts += (_PAIR.pack(len(k), len(v)), k, v)
        parts.append(body)
        return b"".join(parts)

    def close(self) -> None:
        """There is nothing to end."""


def _column(values: list[bytes]) -> np.ndarray:
    """The values as rows of one element."""
    out = np.empty((len(values), 1), np.object_)
    out[:, 0] = values
    return out


def _read_json(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def _encoded(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode("utf-8")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        import io

        held = io.BytesIO()
        torch.save(value, held)
        return held.getvalue()
    return json.dumps(value, indent=2).encode("utf-8")


def _error(code: int, text: str) -> bytes:
    message = text.encode("utf-8", "replace")
    return b"".join((MAGIC, _ANSWER.pack(_ERROR, code if 100 <= code <= 65535 else 500, 0, 0), message))


class Failed:
    """The error of a request that was not packed."""

    def __init__(self, text: str, code: str):
        self.text, self.code = text, code


def _plain(answer: bytes) -> Any:
    """The answer in the form for a KServe client: the body alone, or its error."""
    kind, code, phrase, headers = _ANSWER.unpack_from(answer, len(MAGIC))
    at = len(MAGIC) + _ANSWER.size + phrase
    for _ in range(headers):
        k, v = _PAIR.unpack_from(answer, at)
        at += _PAIR.size + k + v
    body = answer[at:]
    if kind != _ERROR and code < 400:
        return body
    names = {404: "NOT_FOUND", 503: "UNAVAILABLE"}
    return Failed(body.decode("utf-8", "replace") or f"status {code}", names.get(code, "INVALID_ARG" if code < 500 else "INTERNAL"))


def _log_fault() -> None:
    from shoal import _worker

    error = sys.exc_info()[1]
    _worker.log("error", _faults.trace(error) if error is not None else "")


def _flush_metrics(context: Any, torch: bool) -> None:
    """Write the batch's metrics to the server's log of metrics."""
    store = context.metrics.store
    if not store:
        return
    from shoal import _worker

    lines = [m.line(torch) for m in store]
    store.clear()
    _worker.log("metric", "\n".join(lines))


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


class _Asked:
    """One request of the server: id, headers and data for the handler."""

    __slots__ = ("id", "headers", "data", "packed")


def _parse(raw: bytes, decode: bool) -> _Asked:
    a = _Asked()
    a.headers, a.data = Headers(), {}
    a.packed = raw[: len(MAGIC)] == MAGIC
    if not a.packed:
        a.id = str(uuid.uuid4())
        a.data["body"] = bytearray(raw)
        return a
    at = len(MAGIC)
    size, count = struct.unpack_from("<HH", raw, at)
    at += 4
    a.id = raw[at : at + size].decode("ascii", "replace")
    at += size
    headers = []
    for _ in range(count):
        k, v = _PAIR.unpack_from(raw, at)
        at += _PAIR.size
        headers.append((raw[at : at + k].decode("utf-8", "replace"), raw[at + k : at + k + v].decode("utf-8", "replace")))
        at += k + v
    (parts,) = _U16.unpack_from(raw, at)
    at += 2
    for _ in range(parts):
        n, t, size = _PART.unpack_from(raw, at)
        at += _PART.size
        name = raw[at : at + n].decode("utf-8", "replace")
        at += n
        kind = raw[at : at + t].decode("utf-8", "replace")
        at += t
        value = raw[at : at + size]
        at += size
        a.headers[name] = {"content-type": kind}
        a.data[name] = _decoded(kind, value) if decode else bytearray(value)
    a.headers.update(headers)
    return a


def _decoded(kind: str, value: bytes) -> Any:
    if kind == "application/json":
        try:
            return json.loads(value.decode("utf-8"))
        except ValueError as e:  # includes bytes that are not UTF-8
            logging.warning("a request has the content type application/json and cannot be parsed: %s", e)
            return bytearray(value)
    if kind.startswith("text"):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return bytearray(value)
    return bytearray(value)


class _Sender:
    """Sends parts of a streaming answer; handlers know it as context.cl_socket."""

    def __init__(self, handler: Handler, requests: list[Any], asked: list[_Asked]):
        self._handler, self._requests, self._asked = handler, requests, asked

    def send(self, values: list[Any]) -> None:
        """Send one part of each request's answer."""
        h = self._handler
        for i, (request, value) in enumerate(zip(self._requests, values)):
            h.context.request_processor[i].add_response_property("ts_stream_next", "true")
            answer = h.pack(i, value, _MORE)
            if not self._asked[i].packed:
                answer = _plain(answer)
                if isinstance(answer, Failed):
                    continue
            request.respond([("data", _column([answer]))])
