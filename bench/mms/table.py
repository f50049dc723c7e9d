"""The table of the guide to batch inference: ab with batches of 1 to 16 and a handler that pads, with max_batch_delay and with --batching auto.

    python3 bench/mms/table.py --shoal build/shoal [--mms build/mms-venv] [--python PYTHON]

The handler stands for a model on a GPU: a batch takes 8 ms and 0.5 ms for each of its requests, and eight workers run side by side. Needs ab.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile

from bench import Peer

HANDLER = """
import time


class Padding:
    def initialize(self, context):
        self.batch_size = context.system_properties["batch_size"]

    def preprocess(self, data):
        images = [row.get("data") or row.get("body") or b"" for row in data]
        return images + [b""] * (self.batch_size - len(images)), len(images)

    def inference(self, images, count):
        time.sleep(0.008 + 0.0005 * count)
        return [{"probability": len(image) / 1000} for image in images]

    def handle(self, data, context):
        images, count = self.preprocess(data)
        return self.inference(images, count)[:count]
"""

WORKERS, DELAY = 8, 50


def ab(peer: Peer, model: str, callers: int, requests: int, image: pathlib.Path) -> float:
    """The requests per second that ab saw; a failed request is an error."""
    url = f"http://127.0.0.1:{peer.inference}/predictions/{model}"
    command = ["ab", "-k", "-l", "-q", "-n", str(requests), "-c", str(callers), "-T", "image/jpeg", "-p", str(image), url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    failed = int(re.search(r"Failed requests:\s+(\d+)", done.stdout)[1])
    if failed or "Non-2xx" in done.stdout:
        raise SystemExit(f"{' '.join(command)}: requests failed\n{done.stdout}")
    return float(re.search(r"Requests per second:\s+([\d.]+)", done.stdout)[1])


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--shoal", required=True)
    flags.add_argument("--mms", help="virtual environment with multi-model-server 1.1.11")
    flags.add_argument("--python", default="python3", help="interpreter of Shoal's workers")
    flags.add_argument("--rounds", type=int, default=3, help="rounds of the cells, of which the median is printed")
    flags.add_argument("--seconds", type=float, default=1.5, help="about how long a cell runs")
    flags.add_argument("--servers", default="delay,auto", help="of Shoal: with max_batch_delay, with --batching auto")
    flags.add_argument("--callers", default="1,10,100")
    flags.add_argument("--batches", default="1,2,4,8,16")
    flags.add_argument("--requests", type=int, default=10000, help="of the runs with 100 callers, as in the guide; 0 for none")
    given = flags.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-mms-"))
    shoal = str(pathlib.Path(given.shoal).absolute())
    image = folder / "kitten.jpg"
    image.write_bytes(b"j" * 1000)
    (folder / "store").mkdir()
    for name in ("trivial", "padding"):  # trivial is what a Peer starts with
        source = folder / "src" / name
        source.mkdir(parents=True)
        (source / "service.py").write_text(HANDLER)
        command = [shoal, "archive", "create", "--model-name", name, "--model-path", source, "--handler", "service", "--export-path", folder / "store"]
        subprocess.run(command, check=True, capture_output=True)
    link = folder / "multi-model-server"
    link.symlink_to(shoal)
    batches, callers = [int(b) for b in given.batches.split(",")], [int(c) for c in given.callers.split(",")]
    peers: list[Peer] = []
    try:
        for name in given.servers.split(","):
            peers.append(Peer(name, folder, [str(link), "--python", given.python, *(["--batching", "auto"] if name == "auto" else [])], {}, ""))
        if given.mms:
            venv = pathlib.Path(given.mms).absolute()
            env = {"PATH": f"{venv}/bin:{os.environ['PATH']}", "PYTHONPATH": ""}
            peers.append(Peer("mms", folder, [f"{venv}/bin/multi-model-server", "--start"], env, ""))
        titles = {"delay": f"Shoal, max_batch_delay={DELAY}", "auto": "Shoal, --batching auto", "mms": f"Multi Model Server, max_batch_delay={DELAY}"}
        for peer in peers:
            print(f"\n{titles[peer.name]}, {WORKERS} workers, requests per second (`ab -k`):\n")
            print("| callers | " + " | ".join(f"batch {b}" for b in batches) + " |")
            print("|---|" + "---|" * len(batches))
            rates: dict[int, dict[int, list[float]]] = {c: {b: [] for b in batches} for c in callers}
            for batch in batches:
                peer.register(f"padding{batch}", "padding", batch, DELAY, WORKERS)
            for _ in range(given.rounds):
                for c in callers:
                    for batch in batches:
                        waits = peer.name != "auto" and batch > c  # each batch waits out the delay
                        rate = c * (15 if waits else 80)
                        rates[c][batch].append(ab(peer, f"padding{batch}", c, int(given.seconds * min(rate, 3000)), image))
            for c in callers:
                row = [statistics.median(rates[c][b]) for b in batches]
                print(f"| {c} | " + " | ".join(f"{r:,.0f}" for r in row) + " |", flush=True)
            if peer.name == "auto":
                worst = min(statistics.median(rates[c][b]) / statistics.median(rates[c][batches[0]]) for c in callers for b in batches)
                spread = max(max(rates[c][batches[0]]) / min(rates[c][batches[0]]) for c in callers)
                print(f"\nThe worst cell has {worst:.2f} of what batch 1 has; batch 1 itself differs by {spread:.2f} from round to round.")
            for batch in batches:
                peer.drop(f"padding{batch}")
        if not given.requests:
            return
        print(f"\n`ab -k -n {given.requests} -c 100`, requests per second:\n")
        print("| server | " + " | ".join(f"batch {b}" for b in (1, 8, 16)) + " |\n|---|---|---|---|")
        for peer in peers:
            cells = []
            for batch in (1, 8, 16):
                peer.register(f"p{batch}", "padding", batch, DELAY, WORKERS)
                cells.append(f"{ab(peer, f'p{batch}', 100, given.requests, image):,.0f}")
                peer.drop(f"p{batch}")
            print(f"| {titles[peer.name]} | " + " | ".join(cells) + " |", flush=True)
    finally:
        for peer in peers:
            peer.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
