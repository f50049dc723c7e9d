"""Finds the model in a user's file and chooses its handler: shoal.Model or TritonPythonModel."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from typing import Any

from shoal import _model, _triton


def load(init: dict[str, Any]):
    """Imports the model's file and returns the handler that runs what is in it."""
    path = _known(model_file(init))
    module = import_file(path, str(init.get("version", "1")), init.get("repository", ""))
    if hasattr(module, "TritonPythonModel"):
        return _triton.Handler(module.TritonPythonModel, init, path)
    found = _model.find(module)
    if found is not None:
        return _model.Handler(found, init)
    raise AttributeError(
        f"{path} has no model: expected a class TritonPythonModel, a subclass of shoal.Model, "
        "or a function with the decorator @shoal.model"
    )


def model_file(init: dict[str, Any]) -> str:
    """The path of the model's file."""
    if init.get("model_file"):
        return init["model_file"]
    name = init.get("config", {}).get("default_model_filename") or "model.py"
    places = [os.path.join(init[place], name) for place in ("version_dir", "repository") if init.get(place)]
    for path in places:
        if os.path.exists(path):
            return path
    raise FileNotFoundError(f"Python model file not found in '{places[0]}'")


def _known(path: str) -> str:
    """The file as the user knows it: `shoal serve --model` links to the user's folder, of a file or of a model."""
    folder = os.path.dirname(path)
    return os.path.realpath(path) if os.path.islink(folder) or os.path.islink(os.path.dirname(folder)) else path


def import_file(path: str, version: str, root: str) -> types.ModuleType:
    """Imports a file as the module VERSION.NAME, with its folder and the model's on the path.

    So `import helper` finds a file beside the model's, and so does `from . import
    helper`. The package is made by hand: looked up on the path, a folder "1" in the
    working directory would do as well.
    """
    folder = os.path.dirname(os.path.abspath(path))
    for place in (folder, root):
        if place and place not in sys.path:
            sys.path.append(place)
    package = types.ModuleType(version)
    package.__path__ = [folder]
    sys.modules[version] = package
    name = f"{version}.{os.path.splitext(os.path.basename(path))[0]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
