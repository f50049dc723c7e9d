"""TorchServe's service envelopes: they unpack the bodies of requests for the handler, and pack its results."""

from __future__ import annotations

import json
from typing import Any, Callable

Entry = Callable[[Any, Any], Any]


def wrap(name: str, entry: Entry) -> Entry:
    """The handler's entry point behind the envelope of that name."""
    made = {"body": _body, "json": _json, "kserve": _kserve, "kservev2": _kserve_v2}.get(name.lower())
    if made is None:
        raise ValueError(f"service_envelope is {name!r}, want body, json, kserve or kservev2")
    return made(entry)


def _bodies(data: list[dict[str, Any]]) -> list[Any]:
    return [row.get("data") or row.get("body") for row in data]


def _parsed(body: Any) -> Any:
    return json.loads(bytes(body)) if isinstance(body, (bytes, bytearray)) else body


def _body(entry: Entry) -> Entry:
    return lambda data, context: entry(data if data is None else _bodies(data), context)


def _instances(entry: Entry, pack: Callable[[list[Any], Any], Any]) -> Entry:
    """Gives the handler the instances of all requests as one batch, and each request its own results."""

    def handle(data: Any, context: Any) -> Any:
        if data is None:
            return entry(None, context)
        parts = [_parsed(body)["instances"] for body in _bodies(data)]
        results = entry([one for part in parts for one in part], context)
        if not isinstance(results, list) or len(results) != sum(map(len, parts)):
            return results
        out, at = [], 0
        for i, part in enumerate(parts):
            out.append(pack(results[at : at + len(part)], context.get_request_header(i, "explain")))
            at += len(part)
        return out

    return handle


def _json(entry: Entry) -> Entry:
    return _instances(entry, lambda results, _: {"predictions": results})


def _kserve(entry: Entry) -> Entry:
    return _instances(entry, lambda results, explain: {"explanations" if explain == "True" else "predictions": results})


def _kserve_v2(entry: Entry) -> Entry:
    def handle(data: Any, context: Any) -> Any:
        if data is None:
            return entry(None, context)
        bodies = [_parsed(body) for body in _bodies(data)]
        inputs = [[_input(t) for t in body["inputs"]] for body in bodies]
        results = entry([t for part in inputs for t in part], context)
        if not isinstance(results, list) or len(results) != sum(map(len, inputs)):
            return results
        out, at = [], 0
        for i, (body, part) in enumerate(zip(bodies, inputs)):
            own = results[at : at + len(part)]
            at += len(part)
            out.append(
                {
                    "id": body.get("id") or context.get_request_id(i),
                    "model_name": context.manifest["model"]["modelName"],
                    "model_version": context.manifest["model"].get("modelVersion"),
                    "outputs": [_output(t["name"], value) for t, value in zip(part, own)],
                }
            )
        return out

    return handle


def _input(tensor: dict[str, Any]) -> dict[str, Any]:
    if tensor["datatype"] == "BYTES":
        return {**tensor, "data": tensor["data"][0]}
    import numpy as np  # only this envelope needs it

    return {**tensor, "data": np.array(tensor["data"]).reshape(tensor["shape"]).tolist()}


_TYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8", "int16": "INT16",
    "int32": "INT32", "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64",
}  # fmt: skip


def _output(name: str, value: Any) -> dict[str, Any]:
    import numpy as np

    array = np.asarray(value)
    datatype = _TYPES.get(array.dtype.name)
    if datatype is None:
        data = value if isinstance(value, list) else [value]
        return {"name": name, "datatype": "BYTES", "data": data, "shape": [len(data)]}
    return {"name": name, "datatype": datatype, "data": array.reshape(-1).tolist(), "shape": list(array.shape) or [1]}
