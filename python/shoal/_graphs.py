"""Networks of torch as CUDA graphs, and TorchScript files prepared for inference: record and script of shoal.torch."""

from __future__ import annotations

import bisect
from typing import Any, Callable, Sequence

import torch

from shoal import _worker

Net = Callable[..., Any]


def script(path: str, inputs: Sequence[torch.Tensor]) -> Net:
    """A TorchScript file on the GPU of the inputs, which have the shapes of the largest batch: frozen, with normalisation folded into
    convolutions, these fused with what follows, and pictures in the layout that tensor cores read. If that does not give
    the outputs of the file as it is, but for the last digits, it runs as it is."""
    device = inputs[0].device
    plain = torch.jit.load(path, map_location=device).eval()
    try:
        frozen = torch.jit.freeze(torch.jit.load(path, map_location=device).eval().to(memory_format=torch.channels_last))
        fast = torch.jit.optimize_for_inference(frozen)

        def net(*given: torch.Tensor) -> Any:
            return fast(*(g.contiguous(memory_format=torch.channels_last) if g.dim() == 4 else g for g in given))

        with torch.inference_mode():
            few = [_sample(i[:2].clone()) for i in inputs]
            _compare(plain(*few), net(*few))
        return net
    except Exception as error:
        _worker.log("warn", f"{path} runs as it is, since it cannot be prepared for inference: {error}")
        return plain


class Recorded:
    """A network whose work is recorded once for each of a few batch sizes and then launched as a whole."""

    def __init__(self, net: Net, inputs: Sequence[torch.Tensor]):
        self._net = net
        self._graphs: dict[int, tuple[Any, Any]] = {}  # rows: the graph and its outputs
        self._sizes: list[int] = []
        searched = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = True  # shapes are fixed: search for the fastest convolutions, once
        try:
            with torch.inference_mode():
                self._inputs = [torch.empty_like(i) for i in inputs]  # that the graphs read
                self._record()
        finally:
            torch.backends.cudnn.benchmark = searched
        self._sizes = sorted(self._graphs)

    def _record(self) -> None:
        pool = torch.cuda.graph_pool_handle()
        for rows in reversed(sizes(len(self._inputs[0]))):  # the largest decides how much memory the others find
            try:
                self._graphs[rows] = self._graph(rows, pool)
            except torch.cuda.OutOfMemoryError as error:  # those that there are will do
                return _worker.log("warn", f"no CUDA graphs for batches of {rows} rows and fewer: {error}")
            except Exception as error:
                self._graphs.clear()
                return _worker.log("warn", f"the network runs without CUDA graphs, so that small batches take longer: {error}")

    def _graph(self, rows: int, pool: Any) -> tuple[Any, Any]:
        given = [_sample(i[:rows]) for i in self._inputs]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM):
                want = self._net(*given)
        torch.cuda.current_stream().wait_stream(aside)
        if any(w.shape[:1] != (rows,) for w in _tensors(want)):
            raise ValueError(f"an output for {rows} rows has another number of rows")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            got = self._net(*given)
        graph.replay()
        _compare(want, got)
        return graph, got

    def __call__(self, *given: torch.Tensor) -> Any:
        """Returns what the network does. The outputs of a graph are good until the next call."""
        rows = len(given[0])
        at = bisect.bisect_left(self._sizes, rows)
        if at == len(self._sizes) or rows == 0 or not self._fits(given, rows):
            return self._net(*given)
        size = self._sizes[at]
        graph, result = self._graphs[size]
        with torch.inference_mode():
            for own, g in zip(self._inputs, given):
                own[:rows].copy_(g, non_blocking=True)
                if rows < size:
                    own[rows:size].zero_()
            graph.replay()
            return _first(result, rows)

    def _fits(self, given: Sequence[torch.Tensor], rows: int) -> bool:
        return len(given) == len(self._inputs) and all(
            g.dtype == own.dtype and g.shape[0] == rows and g.shape[1:] == own.shape[1:] for own, g in zip(self._inputs, given)
        )


_WARM = 4  # TorchScript compiles in its first runs, and cuDNN searches


def sizes(most: int) -> list[int]:
    """The batch sizes that are recorded: the powers of two, from 8 on those between them, and the largest."""
    found = {most}
    n = 1
    while n < most:
        found |= {n, n * 3 // 2} if n >= 8 else {n}
        n *= 2
    return sorted(s for s in found if s <= most)


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Fills a tensor with values between -1 and 1; whole numbers may be places in a table, and are 0."""
    return tensor.uniform_(-1, 1) if tensor.is_floating_point() else tensor.zero_()


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, dict):
        return list(result.values())
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _first(result: Any, rows: int) -> Any:
    if isinstance(result, dict):
        return {k: v[:rows] for k, v in result.items()}
    return tuple(v[:rows] for v in result) if isinstance(result, (tuple, list)) else result[:rows]


def _compare(want: Any, got: Any) -> None:
    """Raises unless the outputs are the same, but for the last digits, which depend on the order of sums."""
    for w, g in zip(_tensors(want), _tensors(got)):
        w, g = w.double(), g.double()
        if w.shape != g.shape or not bool(((w - g).abs() <= w.abs().max() / 100).all()):
            raise ValueError("its outputs would not be the same")
