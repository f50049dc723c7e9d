"""Networks as CUDA graphs, with a torch that is not there: tensors are numpy's, and a graph is the list of operations that were
called while it was recorded."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types

import numpy as np
import pytest


class Values(np.ndarray):
    def abs(self):
        return np.abs(self)


class Tensor:
    device = "cuda"

    def __init__(self, array):
        self.array = array

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)

    def __len__(self):
        return len(self.array)

    def __getitem__(self, at):
        return Tensor(self.array[at])

    def uniform_(self, low, high):
        self.array[...] = np.random.default_rng(1).uniform(low, high, self.shape)
        return self

    def zero_(self):
        self.array[...] = 0
        return self

    def copy_(self, other, non_blocking=False):
        self.array[...] = other.array

    def is_floating_point(self):
        return self.dtype.kind == "f"

    def double(self):
        return self.array.astype(np.float64).view(Values)


class Torch(types.ModuleType):
    """As much of torch as graphs need."""

    def __init__(self):
        super().__init__("torch")
        self.recording = None
        self.searched = []  # whether cuDNN searches, for each call of the network
        self.fault = None  # raised by the network while it is recorded
        torch = self

        class Graph:
            def __init__(self):
                self.work = []
                self.replays = 0

            def replay(self):
                self.replays += 1
                for do in self.work:
                    do()

        @contextlib.contextmanager
        def record(graph, pool):
            torch.recording = graph
            try:
                yield
            finally:
                torch.recording = None

        stream = types.SimpleNamespace(wait_stream=lambda other: None)
        self.cuda = types.SimpleNamespace(
            CUDAGraph=Graph, graph=record, graph_pool_handle=object, Stream=lambda: stream, current_stream=lambda: stream,
            stream=contextlib.nullcontext, OutOfMemoryError=type("OutOfMemoryError", (RuntimeError,), {}),
        )  # fmt: skip
        self.backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(benchmark=False))
        self.inference_mode = contextlib.nullcontext
        self.empty_like = lambda t: Tensor(np.empty_like(t.array))
        self.Tensor = Tensor

    def net(self, x):
        """Twice the input and one, and the sums of the rows; counts its calls in searched."""
        self.searched.append(self.backends.cudnn.benchmark)
        if self.recording is not None and self.fault is not None:
            raise self.fault
        twice, sums = Tensor(np.empty_like(x.array)), Tensor(np.empty(x.shape[:1], x.dtype))

        def do():
            twice.array[...] = x.array * 2 + 1
            sums.array[...] = x.array.sum(axis=1)

        (self.recording.work.append if self.recording is not None else lambda f: f())(do)
        return twice, sums


@pytest.fixture
def torch(monkeypatch, worker):
    fake = Torch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.delitem(sys.modules, "shoal._graphs", raising=False)
    fake.graphs = importlib.import_module("shoal._graphs")
    fake.graphs._worker = worker
    yield fake
    sys.modules.pop("shoal._graphs", None)


def check(net, rows, width=3):
    x = np.random.default_rng(rows).uniform(-1, 1, (rows, width)).astype(np.float32)
    twice, sums = net(Tensor(x))
    np.testing.assert_array_equal(twice.array, x * 2 + 1)
    np.testing.assert_array_equal(sums.array, x.sum(axis=1))


def test_batches_run_in_the_next_recorded_size(torch, worker):
    net = torch.graphs.Recorded(torch.net, [Tensor(np.empty((12, 3), np.float32))])
    assert net._sizes == [1, 2, 4, 8, 12] and all(torch.searched) and not torch.backends.cudnn.benchmark
    torch.searched.clear()
    before = {rows: graph.replays for rows, (graph, _) in net._graphs.items()}
    for rows, size in ((1, 1), (3, 4), (4, 4), (5, 8), (11, 12), (12, 12)):
        check(net, rows)
        assert net._graphs[size][0].replays == before[size] + 1
        before[size] += 1
        own = net._inputs[0].array
        assert not own[rows:size].any(), "padding is zeros, not another's rows"
    assert not torch.searched, "the graphs run, not the network"
    check(net, 13)  # more rows than were recorded, other shapes and none run as before
    check(net, 2, width=5)
    assert len(torch.searched) == 2 and not worker.lines


def test_a_network_that_cannot_be_recorded_runs_without(torch, worker):
    torch.fault = RuntimeError("operation not permitted when stream is capturing")
    net = torch.graphs.Recorded(torch.net, [Tensor(np.empty((4, 3), np.float32))])
    check(net, 3)
    assert len(worker.lines) == 1 and worker.lines[0][0] == "warn" and "not permitted" in worker.lines[0][1]
    assert not torch.backends.cudnn.benchmark


def test_a_lack_of_memory_leaves_fewer_graphs(torch, worker):
    calls = []

    def net(x):
        calls.append(len(x))
        if torch.recording is not None and len(x) == 2:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return torch.net(x)

    recorded = torch.graphs.Recorded(net, [Tensor(np.empty((4, 3), np.float32))])
    assert recorded._sizes == [4] and "2 rows" in worker.lines[0][1]
    check(recorded, 1)


def test_outputs_that_differ_or_have_other_rows_are_not_recorded(torch, worker):
    def forgets(x):  # as a network whose work depends on values that a graph does not see
        out = Tensor(np.zeros(x.shape, x.dtype))
        if torch.recording is None:
            out.array[...] = x.array
        return out

    net = torch.graphs.Recorded(forgets, [Tensor(np.empty((1, 3), np.float32))])
    assert not net._sizes and "would not be the same" in worker.lines[0][1]
    net = torch.graphs.Recorded(lambda x: Tensor(np.zeros(1, np.float32)), [Tensor(np.empty((2, 3), np.float32))])
    assert not net._sizes and "another number of rows" in worker.lines[1][1]


def test_sizes(torch):
    assert torch.graphs.sizes(1) == [1] and torch.graphs.sizes(4) == [1, 2, 4]
    assert torch.graphs.sizes(32) == [1, 2, 4, 8, 12, 16, 24, 32] and torch.graphs.sizes(10) == [1, 2, 4, 8, 10]
