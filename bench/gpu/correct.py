"""Random requests of 1 to 7 rows of ResNet-50 to a running server, from 24 callers, compared with ONNX Runtime on the CPU:
correct.py MODEL.onnx [host:port]."""

import http.client
import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime

CALLERS, REQUESTS, ROWS = 24, 42, 192

host = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:8000"
images = np.random.default_rng(7).standard_normal((ROWS, 3, 224, 224), dtype=np.float32)
cpu = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
want = np.concatenate([cpu.run(None, {"image": images[i : i + 16]})[0] for i in range(0, ROWS, 16)])


def ask(connection, rows):
    """The server's answer for these rows; None for an error."""
    body = images[rows].tobytes()
    tensor = {"name": "image", "datatype": "FP32", "shape": [len(rows), 3, 224, 224], "parameters": {"binary_data_size": len(body)}}
    head = json.dumps({"inputs": [tensor], "outputs": [{"name": "scores", "parameters": {"binary_data": True}}]}).encode()
    connection.request("POST", "/v2/models/resnet50/infer", head + body, {"Inference-Header-Content-Length": str(len(head))})
    answer = connection.getresponse()
    data = answer.read()
    if answer.status != 200:
        return None
    return np.frombuffer(data[int(answer.getheader("Inference-Header-Content-Length")) :], np.float32).reshape(len(rows), 1000)


def caller(seed):
    """The worst difference, that relative to the row's norm, rows that are another's, and failures."""
    rng, connection = random.Random(seed), http.client.HTTPConnection(host)
    worst, relative, wrong, failed = 0.0, 0.0, 0, 0
    for _ in range(REQUESTS):
        rows = [rng.randrange(ROWS) for _ in range(rng.randint(1, 7))]
        got = ask(connection, rows)
        if got is None:
            failed += 1
            continue
        worst = max(worst, np.abs(got - want[rows]).max())
        relative = max(relative, (np.linalg.norm(got - want[rows], axis=1) / np.linalg.norm(want[rows], axis=1)).max())
        nearest = np.abs(got[:, None] - want[None]).max(-1).argmin(1)
        wrong += int((nearest != np.array(rows)).sum())
    return worst, relative, wrong, failed


with ThreadPoolExecutor(CALLERS) as pool:
    results = list(zip(*pool.map(caller, range(CALLERS))))
print(f"{CALLERS * REQUESTS} requests: worst difference {max(results[0]):.3g} (values to {np.abs(want).max():.3g}), "
      f"relative {max(results[1]):.3g}, {sum(results[2])} rows of others, {sum(results[3])} failed")  # fmt: skip
