"""Serve Python models in batches: a model in ten lines, a server in one.

    import shoal

    class Mean(shoal.Model):
        x = shoal.Input("float32", [-1])
        mean = shoal.Output("float32")

        def predict(self, x):
            return x.mean(axis=1)

    with shoal.serve(Mean) as server:
        print(server(x=[[1, 2, 3]]))

`shoal serve --model FILE.py` serves the same class without a script of yours.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal._binary import ServeError
    from shoal._call import acall, call
    from shoal._client import Client, InferenceError
    from shoal._declare import Context, Model, model
    from shoal._model import Batch, Error
    from shoal._serve import serve
    from shoal._server import Server
    from shoal._session import Session, SessionError
    from shoal._spec import Input, Output

__version__ = "0.1.0"

# Loaded when first used: a worker needs few of them, and starts sooner without.
_HOMES = {
    "Batch": "_model",
    "Client": "_client",
    "Context": "_declare",
    "Error": "_model",
    "InferenceError": "_client",
    "Input": "_spec",
    "Model": "_declare",
    "Output": "_spec",
    "ServeError": "_binary",
    "Server": "_server",
    "Session": "_session",
    "SessionError": "_session",
    "acall": "_call",
    "call": "_call",
    "model": "_declare",
    "serve": "_serve",
}

__all__ = [
    "Batch", "Client", "Context", "Error", "InferenceError", "Input", "Model", "Output", "ServeError", "Server",
    "Session", "SessionError", "acall", "call", "model", "serve",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"shoal.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
