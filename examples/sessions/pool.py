"""32 processes that prepare pictures and share one model: python examples/sessions/pool.py

Each process has a session of its own; the server batches their calls. A picture is written once, into shared memory.
"""

import argparse
import multiprocessing
import os
import tempfile
import time

import numpy as np

import shoal

FOLDER = os.path.dirname(os.path.abspath(__file__))


def prepare(number: int) -> np.ndarray:
    """What such processes spend their time on: here a picture of noise, as bytes, becomes normalised floats, NCHW."""
    raw = np.random.default_rng(number).integers(0, 256, (224, 224, 3), np.uint8)
    return ((raw.astype(np.float32) / 255 - 0.5) / 0.25).transpose(2, 0, 1)[None]


def work(socket: str, numbers: list[int], answers) -> None:
    with shoal.Session("model", socket) as session:
        for n in numbers:
            picture = prepare(n)
            mean = session.run(picture=picture, copy=True)
            assert np.allclose(mean, picture.mean(axis=(2, 3)), atol=1e-4)
    answers.put(len(numbers))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--pictures", type=int, default=3200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        socket = os.path.join(folder, "s")
        with shoal.serve(os.path.join(FOLDER, "model.py"), flags=["--session-socket", socket]) as server:
            answers = multiprocessing.Queue()
            parts = [list(range(i, given.pictures, given.processes)) for i in range(given.processes)]
            pool = [multiprocessing.Process(target=work, args=(socket, part, answers)) for part in parts]
            begin = time.monotonic()
            for p in pool:
                p.start()
            for p in pool:
                p.join()
            took = time.monotonic() - begin
            if any(p.exitcode for p in pool):
                raise SystemExit("a process failed")
            done = sum(answers.get() for _ in pool)
            stats = server.client.get("/v2/models/model/stats")["model_stats"][0]
            mean = stats["inference_count"] / stats["execution_count"]
            print(f"{done} pictures by {given.processes} processes in {took:.1f} s: {done / took:,.0f} a second, {mean:.1f} in a batch")


if __name__ == "__main__":
    main()
