"""The network of torchscript.py in a loop without a server, with pageable memory and with pinned memory both ways."""

import pathlib
import sys
import time

import numpy as np
import torch

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here), str(here.parents[1] / "python")]
import torchscript  # noqa: E402

model = torchscript.ResNet50()
model.load()
for rows in (1, 4, 8, 16, 32, 64):
    images = np.random.rand(rows, 3, 224, 224).astype(np.float32)
    pinned = torch.from_numpy(images).pin_memory()
    answer = torch.empty(rows, 1000).pin_memory()

    def loop():
        with torch.inference_mode():
            x = pinned.to("cuda", non_blocking=True)
            answer.copy_(model.net(x.half() if model.half else x), non_blocking=True)
            torch.cuda.synchronize()

    rates = []
    for f in (lambda: model.predict(images), loop):
        for _ in range(10):
            f()
        done, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < 0.7:
            f()
            done += rows
        rates.append(done / (time.perf_counter() - begin))
    print(f"batch {rows}: {rates[0]:.0f} rows/s pageable, {rates[1]:.0f} pinned", flush=True)
