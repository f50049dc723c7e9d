"""The network of torchscript.py with shoal.torch: `shoal serve --model resnet50_ts=bench/gpu/ongpu.py`."""

import os
import pathlib
import sys

import shoal
import shoal.torch

sys.path.insert(0, str(pathlib.Path(os.environ.get("BENCH", "bench/gpu")).resolve()))
import torchscript  # noqa: E402


class ResNet50(torchscript.ResNet50):
    image = shoal.Input("float32", [3, 224, 224])
    scores = shoal.Output("float32", [1000])

    def load(self):
        super().load()

    @shoal.torch.on_gpu
    def predict(self, image):
        return self.net(image.half() if self.half else image).float()
