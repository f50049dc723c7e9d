"""Python models that break in every way, and eyes on the workers behind them."""

from __future__ import annotations

import os
import pathlib
import textwrap

import numpy as np
import tritonclient.grpc
import tritonclient.http

import models
from server import Server
from stage import batching

# What the model does is asked for with the request. Without a wish it answers VALUE + 1.
BREAKABLE = '''
import ctypes
import os
import sys
import time

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        time.sleep(LOAD_SECONDS)
        if os.path.exists(os.path.join(os.path.dirname(__file__), "broken")):
            raise RuntimeError("the file that breaks it is there")

    def execute(self, requests):
        answers = []
        for request in requests:
            act = pb.get_input_tensor_by_name(request, "ACT").as_numpy().ravel()[0].decode()
            value = pb.get_input_tensor_by_name(request, "VALUE").as_numpy()
            answers.append(self.act(act, value))
        if any(a == "few" for a in answers):
            return []
        if any(a == "many" for a in answers):
            return [self.answer(np.zeros((1, 1), np.float32))] * (len(requests) + 1)
        return answers

    def answer(self, value):
        pid = np.full((len(value), 1), os.getpid(), np.int32)
        return pb.InferenceResponse([pb.Tensor("NEXT", value), pb.Tensor("PID", pid)])

    def act(self, act, value):
        if act == "exit":
            print("about to leave", file=sys.stderr)
            sys.stderr.flush()
            os._exit(3)
        if act == "segfault":
            ctypes.string_at(0)
        if act == "loop":
            while True:
                pass
        if act == "raise":
            raise ValueError("no such luck")
        if act == "close":
            os.closerange(3, 4096)
        if act == "sleep":
            time.sleep(0.3)
        if act == "fork" and os.fork() == 0:
            sys.exit(0)  # the child only, as scripts do
        if act.startswith("hold "):
            gate = act.removeprefix("hold ")
            open(f"{gate}.{os.getpid()}", "w").close()
            while not os.path.exists(gate):
                time.sleep(0.01)
        if act in ("few", "many"):
            return act
        if act == "none":
            return None
        if act == "shape":
            return self.answer(np.zeros((len(value), 3), np.float32))
        if act == "rows":
            return self.answer(np.zeros((len(value) + 1, 1), np.float32))
        if act == "type":
            return self.answer(np.zeros((len(value), 1), np.int64))
        if act == "large":
            return self.answer(np.zeros((len(value), 1 << 20), np.float32))
        return self.answer(value + 1)
'''


def breakable(name: str = "breakable", count: int = 1, load: float = 0, timeout: float = 0, width: int = 1, rows: int = 4):
    """A model that breaks as it is asked to, with `count` workers that take `load` seconds to load."""
    extra = models.instances(count) + batching()
    if timeout:
        extra += models.parameter("SHOAL_EXECUTION_TIMEOUT_SECONDS", timeout)
    return models.Model(
        name=name,
        backend="python",
        inputs=(models.Tensor("ACT", "BYTES", (1,)), models.Tensor("VALUE", "FP32", (1,))),
        outputs=(models.Tensor("NEXT", "FP32", (width,)), models.Tensor("PID", "INT32", (1,))),
        max_batch_size=rows,
        extra=extra,
        files={"1/model.py": BREAKABLE.replace("LOAD_SECONDS", str(load))},
    )


def unloadable(name: str, source: str) -> models.Model:
    """A model with the tensors of breakable whose file cannot be used."""
    good = breakable(name)
    return models.Model(**{**good.__dict__, "files": {"1/model.py": textwrap.dedent(source)}})


def inputs(library, act: str, value: float) -> list:
    wish = library.InferInput("ACT", [1, 1], "BYTES")
    wish.set_data_from_numpy(np.array([[act.encode()]], np.object_))
    number = library.InferInput("VALUE", [1, 1], "FP32")
    number.set_data_from_numpy(np.array([[value]], np.float32))
    return [wish, number]


def ask(server: Server, act: str = "", value: float = 1, model: str = "breakable", protocol: str = "http"):
    """Asks once over a connection of its own. Returns the next number and the pid of who answered."""
    if protocol == "http":
        with tritonclient.http.InferenceServerClient(server.http, network_timeout=30) as client:
            return read(client.infer(model, inputs(tritonclient.http, act, value)))
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        return read(client.infer(model, inputs(tritonclient.grpc, act, value), client_timeout=30))


def read(result) -> tuple[float, int]:
    return float(result.as_numpy("NEXT")[0, 0]), int(result.as_numpy("PID")[0, 0])


def held(gate: pathlib.Path) -> int:
    """How many workers have been told to hold until the gate is there."""
    return len(list(gate.parent.glob(f"{gate.name}.*")))


def alive(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children(pid: int) -> list[int]:
    """The children of all threads of a process, zombies too."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(c) for c in task.read_text().split()]
        except OSError:
            pass  # the thread has ended
    return found


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def mapped_memfds(pid: int) -> int:
    """How many mappings of shared memory a process has."""
    return pathlib.Path(f"/proc/{pid}/maps").read_text().count("memfd:")


def worker(server: int, model: str) -> int:
    """The worker process of a model; its memory has the instance's name."""
    for pid in children(server):
        if f"memfd:shoal {model}_" in pathlib.Path(f"/proc/{pid}/maps").read_text():
            return pid
    raise AssertionError(f"no worker of {model}")
