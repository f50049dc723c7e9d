"""shoal.serve: serves a model from a script or a notebook."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from typing import Any, Mapping, Sequence

from shoal import _attach, _declare, _model
from shoal._server import Server


def serve(
    target: Any,
    *,
    name: str = "",
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    max_batch: int | None = None,
    instances: int | None = None,
    max_delay: float = 0.0,
    address: str = "127.0.0.1",
    http_port: int = 0,
    grpc_port: int = 0,
    metrics_port: int = 0,
    flags: Sequence[str] = (),
    log: bool = False,
    timeout: float = 120,
) -> Server:
    """Serves a model and returns when it is ready.

    `target` is a subclass of shoal.Model, an object of one, or a function; it
    runs in this process, in threads, so it may use anything that is loaded here.
    A str or path of a .py file or a model's folder is served by worker processes
    instead.

    A function says its `inputs` and `outputs` here, {"x": ("float32", [-1])}, or in
    its hints or with @shoal.model; `max_batch`, `instances` and `max_delay` are as
    in shoal.Model. Ports of 0 are chosen by the system. `flags` are further flags
    of `shoal serve`; `log` shows the server's log on standard error.

    The server ends with `stop()`, at the end of a with block, and in any case with
    this process.
    """
    if isinstance(target, (str, os.PathLike)):
        return Server(_File(os.fspath(target), name), address, http_port, grpc_port, metrics_port, flags, log, timeout)
    options = {"inputs": inputs, "outputs": outputs, "max_batch": max_batch, "instances": instances, "max_delay": max_delay}
    declared = _declare.declaration(target, **options)
    source = _Here(declared, name or _name_of(declared.label))
    return Server(source, address, http_port, grpc_port, metrics_port, flags, log, timeout)


def _name_of(label: str) -> str:
    """A model's name from that of its class or function: ResNet50 is resnet50, <lambda> is model."""
    return re.sub(r"\W+", "_", label.lower()).strip("_").replace("lambda", "model") or "model"


class _Here:
    """A model that runs in this process."""

    def __init__(self, declared: _declare.Declaration, name: str):
        self.name = name
        self.declared: _declare.Declaration | None = declared
        self._fault: BaseException | None = None
        self._attachments = _attach.Attachments(self._handler)
        self._folder = tempfile.mkdtemp(prefix="shoal-")
        version = os.path.join(self._folder, name, "1")
        os.makedirs(version)
        with open(os.path.join(version, "model.py"), "w") as file:
            file.write(f"# {name} runs in the process that called shoal.serve, {os.getpid()}.\n")
        self.args = ["--model-repository", self._folder]
        self.env = {_attach.VARIABLE: self._attachments.path}

    def _handler(self, init: dict[str, Any]) -> _model.Handler:
        assert self.declared is not None
        handler = _model.Handler(self.declared, init)
        start = handler.start

        def noted() -> None:
            try:
                start()
            except BaseException as error:
                self._fault = error
                raise

        handler.start = noted  # type: ignore[method-assign]
        return handler

    @property
    def fault(self) -> BaseException | None:
        """Why the model could not be loaded here."""
        return self._fault or self._attachments.fault

    def close(self) -> None:
        self._attachments.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class _File:
    """A model's file or folder, which worker processes run."""

    declared = None
    fault = None

    def __init__(self, path: str, name: str):
        if not os.path.exists(path):
            raise FileNotFoundError(f"shoal.serve: {path} does not exist")
        self.name = name or os.path.splitext(os.path.basename(os.path.abspath(path)))[0]
        self.args = ["--model", f"{self.name}={os.path.abspath(path)}"]
        self.env: dict[str, str] = {}

    def close(self) -> None:
        pass
