"""What kind of file is this? Magika's model, from a file's bytes to a name and how sure it is."""

import importlib.util
import json
import pathlib

import numpy as np
import onnxruntime
import shoal


class FileType(shoal.Model):
    content = shoal.Input("bytes")
    label = shoal.Output("str")
    score = shoal.Output("float32")

    def load(self):
        folder = pathlib.Path(importlib.util.find_spec("magika").origin).parent / "models" / "standard_v3_3"
        config = json.loads((folder / "config.min.json").read_text())
        self.labels = np.array(config["target_labels_space"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(folder / "model.onnx", options)

    def predict(self, content):
        windows = np.stack([window(c) for c in content])
        (scores,) = self.session.run(None, {"bytes": windows})
        return self.labels[scores.argmax(axis=1)], scores.max(axis=1)


def window(content: bytes, block: int = 4096, size: int = 1024, padding: int = 256) -> np.ndarray:
    """What the model looks at: the first and the last bytes, without space around them."""
    both = np.full(2 * size, padding, np.int32)
    head = content[:block].lstrip()[:size]
    tail = content[-block:].rstrip()[-size:]
    both[: len(head)] = np.frombuffer(head, np.uint8)
    both[2 * size - len(tail) :] = np.frombuffer(tail, np.uint8)
    return both
