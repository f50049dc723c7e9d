"""The base of TorchServe's handlers: loads a model with torch, and has the three usual steps."""

import abc
import importlib.util
import json
import logging
import os
import time

logger = logging.getLogger(__name__)


class BaseHandler(abc.ABC):
    """Loads the archive's model; subclasses override preprocess, inference and postprocess."""

    def __init__(self):
        self.model = None
        self.mapping = None
        self.device = None
        self.initialized = False
        self.context = None
        self.model_pt_path = None
        self.manifest = None
        self.map_location = None
        self.explain = False
        self.target = 0

    def initialize(self, context):
        """Load the model on the worker's device."""
        import torch

        self.context = context
        properties = context.system_properties
        gpu = properties.get("gpu_id")
        on_gpu = torch.cuda.is_available() and gpu is not None
        self.map_location = "cuda" if on_gpu else "cpu"
        self.device = torch.device(f"cuda:{gpu}" if on_gpu else "cpu")
        self.manifest = context.manifest
        described = self.manifest["model"]
        model_dir = properties.get("model_dir")
        if described.get("serializedFile"):
            self.model_pt_path = os.path.join(model_dir, described["serializedFile"])
        model_file = described.get("modelFile", "")
        if model_file:
            self.model = self._load_pickled_model(model_dir, model_file, self.model_pt_path)
            self.model.to(self.device)
        elif self.model_pt_path and self.model_pt_path.endswith(".pt"):
            self.model = self._load_torchscript_model(self.model_pt_path)
        elif self.model_pt_path and self.model_pt_path.endswith(".onnx"):
            import onnxruntime

            self.model = onnxruntime.InferenceSession(self.model_pt_path)
        else:
            raise RuntimeError("the archive has neither a model file nor a serialized file that can be loaded")
        if hasattr(self.model, "eval"):
            self.model.eval()
        from ts.utils.util import load_label_mapping

        self.mapping = load_label_mapping(os.path.join(model_dir, "index_to_name.json"))
        self.initialized = True

    def _load_torchscript_model(self, model_pt_path):
        import torch

        return torch.jit.load(model_pt_path, map_location=self.device)

    def _load_pickled_model(self, model_dir, model_file, model_pt_path):
        import torch
        from ts.utils.util import list_classes_from_module

        path = os.path.join(model_dir, model_file)
        if not os.path.isfile(path):
            raise RuntimeError("Missing the model.py file")
        spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(model_file))[0], path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        classes = list_classes_from_module(module)
        if len(classes) != 1:
            raise ValueError(f"Expected only one class as model definition. {classes}")
        model = classes[0]()
        if model_pt_path:
            model.load_state_dict(torch.load(model_pt_path, map_location=self.map_location, weights_only=True))
        return model

    def preprocess(self, data):
        """Make a tensor of the requests' bodies."""
        import torch

        rows = [row.get("data") or row.get("body") for row in data]
        return torch.as_tensor([json.loads(bytes(r)) if isinstance(r, (bytes, bytearray)) else r for r in rows], device=self.device)

    def inference(self, data, *args, **kwargs):
        """Run the model."""
        import torch

        with torch.inference_mode():
            return self.model(data.to(self.device), *args, **kwargs)

    def postprocess(self, data):
        """Make a list of the results."""
        return data.tolist()

    def handle(self, data, context):
        """Answer a batch."""
        begin = time.time()
        self.context = context
        if self._is_describe():
            output = [self.describe_handle()]
        elif self._is_explain():
            output = self.explain_handle(self.preprocess(data), data)
        else:
            output = self.postprocess(self.inference(self.preprocess(data)))
        context.metrics.add_time("HandlerTime", round((time.time() - begin) * 1000, 2), None, "ms")
        return output

    def explain_handle(self, data_preprocess, raw_data):
        """Answer a request for an explanation with the handler's get_insights."""
        body = raw_data[0].get("data") or raw_data[0].get("body") or {}
        target = body.get("target", 0) if isinstance(body, dict) else 0
        return self.get_insights(data_preprocess, [body], target)

    def _is_explain(self):
        self.explain = bool(self.context and self.context.get_request_header(0, "explain") == "True")
        return self.explain

    def _is_describe(self):
        return bool(self.context and self.context.get_request_header(0, "describe") == "True")

    def describe_handle(self):
        """What the handler adds to the model's description."""
        return None
