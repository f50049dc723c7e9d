"""The Python-backend models that stand in for ours on a real tritonserver."""

_MODEL = """
import json
import time

import numpy as np
import triton_python_backend_utils as backend

ACT = "%s".split()


def run(arrays):
    if ACT[0] == "add_sub":
        return [arrays["INPUT0"] + arrays["INPUT1"], arrays["INPUT0"] - arrays["INPUT1"]]
    if ACT[0] == "concat":
        return [np.array(arrays["INPUT0"] + arrays["INPUT1"], dtype=np.object_)]
    if ACT[0] == "scale":
        return [arrays["INPUT0"] * np.float32(ACT[1])]
    if ACT[0] == "sleep":
        time.sleep(int(ACT[1]) / 1000)
    if ACT[0] == "identity_all":
        return [arrays["INPUT0"], arrays.get("INPUT1", np.zeros(4, np.float32))]
    return [arrays["INPUT0"]]


class TritonPythonModel:
    def initialize(self, args):
        outputs = json.loads(args["model_config"])["output"]
        self.outputs = [(o["name"], backend.triton_string_to_numpy(o["data_type"])) for o in outputs]

    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        arrays = {t.name(): t.as_numpy() for t in request.inputs()}
        wanted = request.requested_output_names()
        tensors = [
            backend.Tensor(name, array.astype(type_))
            for (name, type_), array in zip(self.outputs, run(arrays))
            if name in wanted
        ]
        return backend.InferenceResponse(output_tensors=tensors)
"""


def source(act: str) -> str:
    """The text of a model.py that does one act, such as "add_sub" or "sleep 150"."""
    return _MODEL % act
