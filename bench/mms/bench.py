"""Shoal beside the real Multi Model Server, and TorchServe where it is given: the same handlers, the cells interleaved.

    python3 bench/mms/bench.py --shoal build/shoal --mms build/mms-venv [--torchserve build/ts-venv] [--python PYTHON]

Needs wrk and Java 17. It prints req/s, p50, CPU per request of the whole process tree, its memory, and the time from the start to the first answer.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

HANDLERS = {
    "trivial": 'def handle(data, context):\n    return None if data is None else [b"ok"] * len(data)\n',
    "mlp": """
import numpy as np

W = [np.random.RandomState(i).rand(256, 256).astype(np.float32) for i in range(8)]


def handle(data, context):
    if data is None:
        return None
    x = np.ones((len(data), 256), np.float32)
    for w in W:
        x = np.tanh(x @ w)
    return [b"%f" % row[0] for row in x]
""",
}


def port() -> int:
    """A free port below 32767, which Multi Model Server needs."""
    for n in range(20000 + os.getpid() % 5000, 32000):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", n)) != 0:
                try:
                    s.bind(("127.0.0.1", n))
                    return n
                except OSError:
                    continue
    raise RuntimeError("no free port")


def get(url: str, method: str = "GET", data: bytes | None = None) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=60) as answer:
        return answer.read()


class Peer:
    """One running server."""

    def __init__(self, name: str, folder: pathlib.Path, command: list[str], env: dict[str, str], config: str):
        self.name, self.folder = name, folder / name
        self.folder.mkdir()
        self.inference = port()
        self.management = self.inference + 1000
        text = f"inference_address=http://127.0.0.1:{self.inference}\nmanagement_address=http://127.0.0.1:{self.management}\n"
        file = self.folder / "config.properties"
        file.write_text(text + f"model_store={folder}/store\njob_queue_size=1000\nasync_logging=true\n" + config.format(metrics=self.inference + 2000, grpc=self.inference + 3000, grpc2=self.inference + 4000))
        begin = time.monotonic()
        self.process = subprocess.Popen(
            [*command, "--foreground"], cwd=self.folder, env={**os.environ, **env, "TMPDIR": str(self.folder), "TEMP": str(self.folder)},
            stdout=open(self.folder / "log", "w"), stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + 90
        while True:
            try:
                get(f"http://127.0.0.1:{self.inference}/ping")
                get(f"http://127.0.0.1:{self.management}/models?url=trivial.mar&model_name=first&initial_workers=1&synchronous=true", "POST")
                break
            except OSError as err:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise RuntimeError(f"{name} did not start: {(self.folder / 'log').read_text()[-2000:]}") from err
                time.sleep(0.02)
        get(f"http://127.0.0.1:{self.inference}/predictions/first", "POST", b"x")
        self.start = time.monotonic() - begin

    def register(self, model: str, handler: str, batch: int, delay: int, workers: int) -> None:
        query = f"url={handler}.mar&model_name={model}&batch_size={batch}&max_batch_delay={delay}&initial_workers={workers}&synchronous=true"
        get(f"http://127.0.0.1:{self.management}/models?{query}", "POST")

    def drop(self, model: str) -> None:
        get(f"http://127.0.0.1:{self.management}/models/{model}", "DELETE")

    def tree(self) -> list[int]:
        """The processes of the server."""
        found, wanted = [], {self.process.pid}
        parents = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)[1].split()
                parents[int(stat.parent.name)] = int(fields[1])
            except OSError:
                pass
        while wanted:
            found += wanted
            wanted = {p for p, parent in parents.items() if parent in wanted}
        return found

    def cpu(self) -> float:
        total = 0
        for pid in self.tree():
            try:
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                total += int(fields[11]) + int(fields[12])
            except OSError:
                pass
        return total / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        total = 0
        for pid in self.tree():
            try:
                text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])
            except (OSError, TypeError):
                pass
        return total / 1024

    def measure(self, model: str, callers: int, seconds: int, script: str) -> tuple[float, float, float]:
        before = self.cpu()
        out = subprocess.run(
            ["wrk", "-t1", f"-c{callers}", f"-d{seconds}s", "--latency", "-s", script, f"http://127.0.0.1:{self.inference}/predictions/{model}"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        spent = self.cpu() - before
        requests = int(re.search(r"(\d+) requests in", out)[1])
        value, unit = re.search(r"50%\s+([\d.]+)(us|ms|s)", out).groups()
        errors = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
        if errors:
            print(f"  {self.name} {model} c={callers}: {errors[1]} requests failed")
        p50 = float(value) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]
        return float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1]), p50, 1e6 * spent / max(requests, 1)

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--shoal", required=True)
    flags.add_argument("--mms", help="virtual environment with multi-model-server 1.1.11")
    flags.add_argument("--torchserve", help="virtual environment with torchserve 0.12.0 and torch")
    flags.add_argument("--python", default="python3", help="interpreter of Shoal's workers")
    flags.add_argument("--seconds", type=int, default=2)
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--warmup", type=int, default=5, help="seconds of load for each server before the first cell")
    flags.add_argument("--callers", default="1,10,50,100")
    flags.add_argument("--json", help="write the figures to this file")
    given = flags.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-mms-"))
    shoal = str(pathlib.Path(given.shoal).absolute())
    (folder / "store").mkdir()
    for name, code in HANDLERS.items():
        source = folder / "src" / name
        source.mkdir(parents=True)
        (source / f"{name}.py").write_text(code)
        command = [shoal, "archive", "create", "--model-name", name, "--model-path", source, "--handler", f"{name}:handle", "--export-path", folder / "store"]
        subprocess.run(command, check=True, capture_output=True)
    script = folder / "post.lua"
    script.write_text('wrk.method = "POST"\nwrk.body = "x"\n')
    link = folder / "multi-model-server"
    link.symlink_to(shoal)
    peers = []
    try:
        peers.append(Peer("shoal", folder, [str(link), "--python", given.python], {}, ""))
        if given.mms:
            venv = pathlib.Path(given.mms).absolute()
            env = {"PATH": f"{venv}/bin:{os.environ['PATH']}", "PYTHONPATH": ""}
            peers.append(Peer("mms", folder, [f"{venv}/bin/multi-model-server", "--start"], env, ""))
        if given.torchserve:
            venv = pathlib.Path(given.torchserve).absolute()
            env = {"PATH": f"{venv}/bin:{os.environ['PATH']}", "PYTHONPATH": ""}
            more = "metrics_address=http://127.0.0.1:{metrics}\ngrpc_inference_port={grpc}\ngrpc_management_port={grpc2}\n"
            command = [f"{venv}/bin/torchserve", "--start", "--ncs", "--disable-token-auth", "--enable-model-api", "--model-store", str(folder / "store"), "--ts-config", "config.properties"]
            peers.append(Peer("torchserve", folder, command, env, more))
        figures = []
        for peer in peers:  # Java compiles what has run for a while
            peer.measure("first", 10, given.warmup, str(script))
        for peer in peers:
            print(f"{peer.name}: start to first answer {peer.start:.2f} s, memory {peer.memory():.0f} MB with one worker")
        for handler, batch, delay in (("trivial", 1, 50), ("trivial", 8, 50), ("mlp", 1, 50), ("mlp", 8, 50)):
            model = f"{handler}{batch}"
            for peer in peers:
                peer.register(model, handler, batch, delay, 1)
            for callers in map(int, given.callers.split(",")):
                runs: dict[str, list] = {p.name: [] for p in peers}
                for _ in range(given.rounds):
                    for peer in peers:
                        runs[peer.name].append(peer.measure(model, callers, given.seconds, str(script)))
                row = {name: [sorted(v)[len(v) // 2] for v in zip(*r)] for name, r in runs.items()}
                figures.append({"handler": handler, "batch": batch, "delay_ms": delay, "callers": callers, **row})
                text = "; ".join(f"{n} {rate:,.0f} req/s p50 {p50:.2f} ms {cpu:.0f} us CPU" for n, (rate, p50, cpu) in row.items())
                print(f"{handler} batch {batch} callers {callers}: {text}", flush=True)
        if given.json:
            starts = {p.name: {"start_s": p.start, "memory_mb": p.memory()} for p in peers}
            pathlib.Path(given.json).write_text(json.dumps({"servers": starts, "figures": figures}, indent=1))
    finally:
        for peer in peers:
            peer.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
