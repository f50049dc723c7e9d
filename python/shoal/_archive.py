"""Runs the handler of a model archive (.mar) of Multi Model Server or TorchServe, unchanged. _archive_rows has its requests and answers."""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import os
import re
import sys
import time
from typing import Any

from shoal import _archive_rows, _faults
from shoal._archive_rows import MORE, REPLY, error


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
    if told.get("archive"):
        _faults.call_folder(model_dir, told["archive"])
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
        self._limit = told.get("max_response_size") or 0
        self._decoupled = bool((init.get("wire") or {}).get("decoupled"))
        self._name = told["model_name"]
        manifest = _read_json(os.path.join(told["model_dir"], "MAR-INF", "MANIFEST.json"))
        gpu = init.get("device_id", 0) if str(init.get("instance_kind", "")).endswith("GPU") else None
        self.context = _archive_context.new(told, manifest, gpu)
        self._failure = _archive_context.failure(self._torch)
        self.parse = _archive_rows.Parser(told.get("decode", True)).parse
        self._logs_metrics = bool(told.get("metrics"))
        if self._decoupled:
            _archive_context.send_parts_here()
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

    def channel(self, *given: Any) -> Any:
        """The worker's end of the memory that is shared with the server."""
        if self._decoupled:
            from shoal import _archive_stream, _wire

            self.execute = lambda batch: _archive_stream.execute(self, batch)  # type: ignore[method-assign]
            return _wire.Channel(*given)
        from shoal import _archive_wire

        return _archive_wire.Channel(*given)

    def execute(self, rows: list[memoryview]) -> Any:
        """Answer a batch with one call of the handler: see _archive_wire.Channel.serve. It is hot."""
        parse = self.parse
        asked = [parse(row) for row in rows]
        context = self.context
        context.begin(asked)
        answers = self.answers(asked)
        if type(answers) is list:
            if all(a.packed for a in asked):
                answers = _archive_rows.framed(answers)
            else:
                answers = [a if q.packed else _archive_rows.unpacked(a) for a, q in zip(answers, asked)]
        self.flush_metrics()
        return answers

    def answers(self, asked: list[_archive_rows.Asked]) -> Any:
        """The rows of the answers, or all of them as one piece where each has a length before it."""
        context, count = self.context, len(asked)
        result = self._call([a.data for a in asked], context)
        if type(result) is bytes:
            return [result] * count
        if context.untouched and not self._decoupled and all(a.packed for a in asked):
            limit = self._limit
            bodies = [v if type(v) is bytes else _encoded_or_none(v) for v in result]
            if None not in bodies and (not limit or max(map(len, bodies)) <= limit):
                return _archive_rows.usual(bodies)
        return [self.pack(i, value, REPLY) for i, value in enumerate(result)]

    def _call(self, data: list[dict[str, Any]], context: Any) -> Any:
        """The handler's results; the row of an error for all requests when it has none."""
        begin = time.time()
        try:
            result = self._entry(data, context)
        except MemoryError:
            _log_fault()
            return error(507, "Out of resources")
        except self._failure as e:
            _log_fault()
            return error(int(e.error_code), str(e.message))
        except (SystemExit, KeyboardInterrupt, GeneratorExit):
            _log_fault()
            return error(500, "Worker died.")
        except BaseException as e:
            _log_fault()
            if self._torch and "CUDA" in str(e):
                return error(507, "Out of resources")
            return error(503, "Prediction failed")
        if not isinstance(result, list):
            return error(503, "Invalid model predict output")
        if len(result) != len(data):
            return error(503, "number of batch response mismatched")
        if self._logs_metrics:
            context.metrics.add_time("PredictionTime", round((time.time() - begin) * 1000, 2), None, "ms")
        return result

    def pack(self, i: int, value: Any, kind: int) -> bytes:
        """The answer of request i."""
        try:
            body = _encoded(value)
        except (TypeError, ValueError):
            _log_fault()
            return error(503, "Unsupported model output data type.")
        if self._limit and len(body) > self._limit:
            text = f"the handler's answer has {len(body)} bytes, and at most {self._limit} are allowed; raise max_response_size"
            logging.error(text)
            return error(500, text)
        p = self.context.request_processor[i]
        headers = p.get_response_headers()
        if kind != MORE and self._decoupled and "ts_stream_next" in headers:
            headers = {**headers, "ts_stream_next": "false"}
        return _archive_rows.answer(kind, p.get_response_status_code(), p.get_response_status_phrase(), headers, body)

    def flush_metrics(self) -> None:
        """Write the batch's metrics to the server's log of metrics."""
        if not self._logs_metrics:
            return
        store = self.context.metrics.store
        if store:
            from shoal import _worker

            lines = [m.line(self._torch) for m in store]
            store.clear()
            _worker.log("metric", "\n".join(lines))

    def close(self) -> None:
        """There is nothing to end."""


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


def _encoded_or_none(value: Any) -> bytes | None:
    try:
        return _encoded(value)
    except (TypeError, ValueError):
        return None


def _log_fault() -> None:
    from shoal import _worker

    error = sys.exc_info()[1]
    _worker.log("error", _faults.told(error) if error is not None else "")
