"""The same network called in a loop, without a server: what the GPU can do with batches of one size."""

import pathlib
import sys
import time

import numpy as np

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here), str(here.parents[1] / "python")]
import resnet50  # noqa: E402

net = resnet50.ResNet50()
net.load()
for rows in (1, 8, 32, 64):
    images = np.random.rand(rows, 3, 224, 224).astype(np.float32)
    for _ in range(10):
        net.predict(images)
    done, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < 2:
        net.predict(images)
        done += rows
    print(f"batch {rows}: {done / (time.perf_counter() - begin):.0f} rows/s")
