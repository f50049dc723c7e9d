"""Helpers that handlers import."""

import importlib
import inspect
import json
import os

from mms.service import PredictionException

__all__ = ["PredictionException", "check_valid_pt2_backend", "get_yaml_config", "list_classes_from_module", "load_label_mapping", "map_class_to_label"]


def list_classes_from_module(module, parent_class=None):
    """The classes that a module defines itself."""
    found = [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__]
    return [c for c in found if parent_class is None or issubclass(c, parent_class)]


def load_label_mapping(mapping_file_path):
    """Read a file with the labels of classes; None when there is none."""
    if not os.path.isfile(mapping_file_path):
        return None
    with open(mapping_file_path, encoding="utf-8") as f:
        mapping = json.load(f)
    if isinstance(mapping, dict) and isinstance(mapping.get("object_type_names"), list):
        mapping = {str(k): v for k, v in enumerate(mapping["object_type_names"])}
    if not isinstance(mapping, dict):
        raise TypeError('index_to_name mapping should be in "class":"label" json format')
    return {k: v[-1] if isinstance(v, list) else v for k, v in mapping.items()}


def map_class_to_label(probs, mapping=None, lbl_classes=None):
    """The probabilities by label."""
    if not (isinstance(probs, list) and all(isinstance(p, list) for p in probs)):
        raise TypeError("Convert classes input to list of list")
    if lbl_classes is None:
        lbl_classes = [list(range(len(row))) for row in probs]
    return [{(mapping[str(c)] if mapping else str(c)): p for c, p in zip(classes, row)} for classes, row in zip(lbl_classes, probs)]


def get_yaml_config(yaml_file_path):
    """Read a YAML file."""
    yaml = importlib.import_module("yaml")
    with open(yaml_file_path, encoding="utf-8") as f:
        return yaml.safe_load(f)


def check_valid_pt2_backend(backend):
    """Whether torch.compile knows the backend."""
    torch = importlib.import_module("torch")
    return backend in torch._dynamo.list_backends()
