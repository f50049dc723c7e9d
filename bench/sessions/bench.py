"""Sessions beside HTTP and gRPC, and SDBI's own benchmark on SDBI and on ours: `make bench-sessions SDBI=folder`.

    python bench/sessions/bench.py --calls              # an identity model over a session, HTTP and gRPC
    python bench/sessions/bench.py --sdbi ../SDBI       # SDBI's benchmark.py, unmodified, --model_type=mock, interleaved
    python bench/sessions/bench.py --sdbi ../SDBI --torch res50.jit    # the rows of its README with a TorchScript file, on a GPU if there is one

SDBI is a checkout of github.com/YellowOldOdd/SDBI; nothing of it is part of this repository.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import numpy as np  # noqa: E402

CONFIG = """backend: "identity"
input { name: "INPUT0" data_type: TYPE_FP32 dims: [-1] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1] }
instance_group { count: 2 }
"""
# SDBI's benchmark imports these at its top; --model_type=mock uses none of them, torch only itself.
STAND_INS = ("torch", "torch2trt", "tensorrt", "pycuda", "pycuda.driver", "pycuda.autoinit")
STAND_IN = "class _Any:\n    def __init__(self, *a, **k): pass\n    device_count = staticmethod(lambda: 0)\n\ncuda = _Any\n\ndef __getattr__(name):\n    return _Any\n"


def serve(folder: str) -> tuple[subprocess.Popen, dict[str, str]]:
    (pathlib.Path(folder) / "models/identity/1").mkdir(parents=True)
    (pathlib.Path(folder) / "models/identity/config.pbtxt").write_text(CONFIG)
    binary = os.environ.get("SHOAL", str(ROOT / "build/shoal"))
    process = subprocess.Popen(
        [binary, "serve", "--model-repository", folder + "/models", "--session-socket", folder + "/s", "--allow-metrics=false",
         "--http-address=127.0.0.1", "--http-port=0", "--grpc-address=127.0.0.1", "--grpc-port=0"], stderr=subprocess.PIPE, text=True)  # fmt: skip
    found = {"session": folder + "/s"}
    assert process.stderr is not None
    for line in process.stderr:
        listening = re.search(r"protocol=(\w+) address=(\S+)", line)
        if listening:
            found[listening[1]] = listening[2]
        if "msg=ready" in line:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, found
    raise SystemExit("the server did not start")


def caller(protocol: str, where: str, size: int, seconds: float, go, results) -> None:
    x = np.random.rand(size // 4).astype(np.float32)
    if protocol == "session":
        import shoal

        s = shoal.Session("identity", where)
        call = lambda: s.run(INPUT0=x)  # noqa: E731
    elif protocol == "http":
        import shoal

        c = shoal.Client(where)
        call = lambda: c.infer("identity", {"INPUT0": x})["OUTPUT0"]  # noqa: E731
    else:
        import tritonclient.grpc as grpc

        g = grpc.InferenceServerClient(where)

        def call():
            given = grpc.InferInput("INPUT0", list(x.shape), "FP32")
            given.set_data_from_numpy(x)
            return g.infer("identity", [given]).as_numpy("OUTPUT0")

    assert (call() == x).all()
    go.wait()
    times = []
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        call()
        times.append(time.perf_counter() - begin)
    results.put(times)


def cpu(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def calls(seconds: float, rounds: int) -> None:
    print(f"identity, {seconds:g} s a cell, medians of {rounds} rounds; CPU is the server's\n")
    print("| bytes | callers | | p50 us | p99 us | calls/s | server CPU us | p50 of HTTP's |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        process, where = serve(folder)
        try:
            for size in (64, 602_112):
                for count in (1, 16):
                    cells: dict[str, list[tuple[float, ...]]] = {"session": [], "http": [], "grpc": []}
                    for _ in range(rounds):
                        for protocol in cells:
                            cells[protocol].append(cell(process.pid, protocol, where[protocol], size, count, seconds))
                    got = {p: [sorted(v)[len(v) // 2] for v in zip(*rows)] for p, rows in cells.items()}
                    for p, (p50, p99, rate, cost) in got.items():
                        print(f"| {size:,} | {count} | {p} | {p50:,.1f} | {p99:,.1f} | {rate:,.0f} | {cost:,.1f} | {p50 / got['http'][0]:.2f} |", flush=True)
        finally:
            process.terminate()
            process.wait()


def cell(pid: int, protocol: str, where: str, size: int, count: int, seconds: float) -> tuple[float, ...]:
    spawn = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
    go, results = spawn.Event(), spawn.Queue()
    callers = [spawn.Process(target=caller, args=(protocol, where, size, seconds, go, results)) for _ in range(count)]
    for c in callers:
        c.start()
    time.sleep(1 + 0.3 * count)  # for their imports
    before = cpu(pid)
    go.set()
    times = sorted(t for _ in callers for t in results.get())
    spent = cpu(pid) - before
    for c in callers:
        c.join()
    n = len(times)
    return times[n // 2] * 1e6, times[int(n * 0.99)] * 1e6, n / seconds, spent / n * 1e6


def shared_memory() -> int:
    return int(re.search(r"Shmem:\s+(\d+) kB", pathlib.Path("/proc/meminfo").read_text())[1]) * 1024


def family(pid: int) -> list[int]:
    """A process and all that it has started."""
    children: dict[int, list[int]] = {}
    for p in os.listdir("/proc"):
        if p.isdigit():
            try:
                children.setdefault(int(pathlib.Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split()[1]), []).append(int(p))
            except OSError:
                pass  # it has ended
    found = [pid]
    for p in found:
        found += children.get(p, [])
    return found


def reserved(pid: int) -> int:
    """The bytes of shared memory that a process and its children have mapped; what several have counts once."""
    ranges: dict[str, set[tuple[int, int]]] = {}
    for p in family(pid):
        try:
            maps = pathlib.Path(f"/proc/{p}/maps").read_text()
        except OSError:
            continue
        for begin, end, offset, inode in re.findall(r"^(\w+)-(\w+) \S+s (\w+) \S+ (\d+) +/(?:dev/shm|memfd:)", maps, re.M):
            at = int(offset, 16)
            ranges.setdefault(inode, set()).add((at, at + int(end, 16) - int(begin, 16)))
    total = 0
    for pieces in ranges.values():
        reach = 0
        for begin, end in sorted(pieces):
            total += max(0, end - max(begin, reach))
            reach = max(reach, end)
    return total


def one(benchmark: pathlib.Path, path: str, flags: list[str], workers: int) -> dict[str, float]:
    """Runs the benchmark once."""
    before, peak, mapped, ended = shared_memory(), [0], [0], threading.Event()
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen([sys.executable, benchmark.name, *flags], cwd=benchmark.parent, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"})  # fmt: skip
    look = time.monotonic() + workers // 10 + 6  # the measurement begins a second later

    def sample() -> None:
        while not ended.wait(0.2):
            peak[0] = max(peak[0], shared_memory() - before)
            if not mapped[0] and time.monotonic() > look:
                mapped[0] = reserved(process.pid)

    sampler = threading.Thread(target=sample)
    sampler.start()
    out, err = process.communicate(timeout=600)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended.set()
    sampler.join()
    if process.returncode != 0:
        print(f"{benchmark} ended with {process.returncode}:\n{err[-2000:]}", file=sys.stderr)
    figures = {}
    for name, pattern in {"rate": r"avg throughput : ([\d.]+)", "p50": r"p50 latency +: ([\d.]+)", "p99": r"p99 latency +: ([\d.]+)",
                          "queries": r"Query num : (\d+)"}.items():  # fmt: skip
        found = re.search(pattern, out)
        figures[name] = float(found[1]) if found else float("nan")
    spent = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    figures["cpu"] = spent / figures["queries"] * 1e6
    figures["reserved"], figures["touched"] = mapped[0] / 1e6, peak[0] / 1e6
    figures["errors"] = len(re.findall(r"(?m)^\w*(?:Error|Exception)", err))  # a worker whose answer is empty or wrong raises one
    return figures


def sdbi(folder: pathlib.Path, seconds: int, rounds: int, workers: list[int], file: pathlib.Path | None) -> None:
    model = ["--model_type=torch", f"--model_path={file}"] if file else ["--model_type=mock"]
    with tempfile.TemporaryDirectory(prefix="b") as temp:
        stand_ins = pathlib.Path(temp) / "stand-ins"
        for name in STAND_INS:
            if file and name == "torch":
                continue
            source = stand_ins / (name.replace(".", "/") + ("/__init__.py" if name == "pycuda" else ".py"))
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(STAND_IN)
        ours = pathlib.Path(temp) / "ours"
        ours.mkdir()
        shutil.copy(folder / "benchmark.py", ours)  # Python takes SimpleDBI from beside the program, else from the path
        rest = os.pathsep.join([str(stand_ins), *map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))])
        os.environ["SHOAL"] = os.path.abspath(os.environ.get("SHOAL", ROOT / "build/shoal"))
        sides = {"SDBI": (folder / "benchmark.py", rest), "ours": (ours / "benchmark.py", str(ROOT / "python") + os.pathsep + rest)}
        print(f"benchmark.py {model[0]}, {seconds} s, medians of {rounds} rounds; CPU is of all processes with their start\n")
        print("| workers / max batch / models, wait | | calls/s | p50 ms | p99 ms | CPU us a call | shared memory MB (touched) | "
              "calls/s, p50, memory of SDBI's | errors |\n|---|---|---|---|---|---|---|---|---|")  # fmt: skip
        shapes = [(n, 32, 1) for n in workers if n != 8 and not file] + [(n, *rest) for n, *rest in ((8, 4, 2), (128, 32, 3), (64, 16, 1)) if n in workers]
        for n, most, copies in sorted(shapes):
            published = 0.003 if n == 8 else 0.01
            for wait in (published,) if file else (published, -1):
                cells: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
                for _ in range(rounds):
                    for name, (benchmark, path) in sides.items():
                        flags = [*model, f"--worker_num={n}", f"--max_batch_size={most}", f"--model_num={copies}", f"--duration={seconds}", f"--wait_time={wait}"]
                        cells[name].append(one(benchmark, path, flags, n))
                got = {name: {k: sorted(r[k] for r in rows)[len(rows) // 2] for k in rows[0]} for name, rows in cells.items()}
                for name, m in got.items():
                    label = f"{n} / {most} / {copies}, {'adaptive' if wait < 0 else f'{wait * 1e3:g} ms'}"
                    ratios = ", ".join(f"{m[k] / got['SDBI'][k]:.2f}" for k in ("rate", "p50", "reserved") if got["SDBI"][k])
                    print(f"| {label} | {name} | {m['rate']:,.0f} | {m['p50']:.2f} | {m['p99']:.2f} | {m['cpu']:,.0f} | "
                          f"{m['reserved']:,.0f} ({m['touched']:,.0f}) | {ratios} | {sum(r['errors'] for r in cells[name]):.0f} |", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--sdbi", type=pathlib.Path, help="a checkout of SDBI")
    parser.add_argument("--torch", type=pathlib.Path, help="with --sdbi: a TorchScript file of pictures of 3 x 224 x 224, instead of the mock model")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", default="1,8,32,64,128")
    given = parser.parse_args()
    if given.calls:
        calls(given.seconds, given.rounds)
    if given.sdbi:
        sdbi(given.sdbi.resolve(), given.seconds, given.rounds, [int(n) for n in given.workers.split(",")], given.torch and given.torch.resolve())


if __name__ == "__main__":
    main()
