"""What kind of file is this? Magika's model behind Triton's Python interface.

A request's parameter `top` says how many labels it wants, best first.
"""

import importlib.util
import json
import pathlib

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils

BLOCK, SIZE, PADDING = 4096, 1024, 256


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        folder = pathlib.Path(importlib.util.find_spec("magika").origin).parent / "models" / "standard_v3_3"
        self.labels = np.array(json.loads((folder / "config.min.json").read_text())["target_labels_space"], np.object_)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(config["parameters"]["threads"]["string_value"])
        self.session = onnxruntime.InferenceSession(folder / "model.onnx", options)
        self.family = pb_utils.MetricFamily(  # kept: its metrics go with it
            name="filetype_bytes", description="Bytes of the files that were looked at", kind=pb_utils.MetricFamily.COUNTER
        )
        self.bytes = self.family.Metric(labels={"model": args["model_name"]})
        pb_utils.Logger.log_info(f"{len(self.labels)} labels")

    def execute(self, requests):
        contents = [pb_utils.get_input_tensor_by_name(r, "content").as_numpy() for r in requests]
        flat = [c for rows in contents for c in rows[:, 0]]
        self.bytes.increment(sum(map(len, flat)))
        (scores,) = self.session.run(None, {"bytes": np.stack([self.window(c) for c in flat])})
        responses, row = [], 0
        for request, rows in zip(requests, contents):
            responses.append(self.answer(request, rows, scores[row : row + len(rows)]))
            row += len(rows)
        return responses

    def answer(self, request, rows, scores):
        if any(len(c) == 0 for c in rows[:, 0]):
            error = pb_utils.TritonError("the content is empty; send a file's bytes", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        top = int(json.loads(request.parameters()).get("top", 1))
        best = np.argsort(-scores, axis=1)[:, :top]
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("labels", self.labels[best]),
                pb_utils.Tensor("scores", np.take_along_axis(scores, best, axis=1)),
            ]
        )

    @staticmethod
    def window(content):
        """What the model looks at: the first and the last bytes, without space around them."""
        both = np.full(2 * SIZE, PADDING, np.int32)
        head = content[:BLOCK].lstrip()[:SIZE]
        tail = content[-BLOCK:].rstrip()[-SIZE:]
        both[: len(head)] = np.frombuffer(head, np.uint8)
        both[2 * SIZE - len(tail) :] = np.frombuffer(tail, np.uint8)
        return both
