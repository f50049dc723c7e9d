"""Torch models on a GPU: predict gets CUDA tensors and returns them.

    import shoal
    import shoal.torch

    class Net(shoal.Model):
        image = shoal.Input("float32", [3, 224, 224])
        scores = shoal.Output("float32", [1000])
        gpus = [0]

        @shoal.torch.on_gpu
        def predict(self, image):
            return self.net(image)

The inputs come from memory that is pinned, on a stream of the model's own; the outputs go back into pinned memory. While a batch
is computed, the inputs of the next one are copied, if the server has sent it already. Predict runs in torch.inference_mode.
"""

from __future__ import annotations

import functools
import time
from typing import Any, Callable

import torch

from shoal import _graphs, _worker

__all__ = ["on_gpu", "record", "script"]

script = _graphs.script


def record(net: Callable[..., Any], *inputs: torch.Tensor) -> Callable[..., Any]:
    """Records what a network does on the GPU as CUDA graphs, for several batch sizes up to that of the inputs, which are examples of the
    largest batch. A call copies its inputs into place, pads them with zeros to the next size and launches the graph: small
    batches, whose kernels take longer to launch than to run, take half as long. Inputs of other shapes run as before. A network
    that cannot be recorded says why in the log and runs as before.

        self.net = shoal.torch.record(net, torch.empty(32, 3, 224, 224, device="cuda"))
    """
    return _graphs.Recorded(net, inputs)


def on_gpu(predict: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a predict that takes and returns CUDA tensors: one, a tuple or a dict of them."""
    lanes: list[_Lane] = []

    @functools.wraps(predict)
    def run(self: Any, *args: Any, **named: Any) -> Any:
        if not lanes:
            lanes.append(_Lane())
        lane = lanes[0]
        with torch.inference_mode(), torch.cuda.stream(lane.stream):
            there = lane.arrived()
            result = predict(self, *(_there(a, there) for a in args), **{k: _there(v, there) for k, v in named.items()})
            if isinstance(result, dict):
                result = {k: lane.back(k, v) for k, v in result.items()}
            elif isinstance(result, (tuple, list)):
                result = tuple(lane.back(i, v) for i, v in enumerate(result))
            else:
                result = lane.back(0, result)
            lane.finish()
        if isinstance(result, dict):
            return {k: _numpy(v) for k, v in result.items()}
        return tuple(map(_numpy, result)) if isinstance(result, tuple) else _numpy(result)

    return run


_LOOK = 50e-6  # seconds between two looks whether the next batch is there


class _Lane:
    """The streams of a model, and what is on its way."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self._copies = torch.cuda.Stream()
        self._done, self._copied = torch.cuda.Event(), torch.cuda.Event()
        self._pinned: dict[tuple[Any, torch.dtype], torch.Tensor] = {}
        self._next = 0  # the batch whose inputs are being copied; 0 for none
        self._ahead: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # an input's address: on the GPU, and here
        self._busy = False  # batches follow each other without a pause

    def back(self, key: Any, value: Any) -> Any:
        """Copy an output into pinned memory."""
        if not isinstance(value, torch.Tensor) or not value.is_cuda:
            return value
        size = value.numel()
        host = self._pinned.get((key, value.dtype))
        if host is None or host.numel() < size:
            room = max(size, 2 * (host.numel() if host is not None else 0))
            host = self._pinned[key, value.dtype] = torch.empty(room, dtype=value.dtype, pin_memory=True)
        out = host[:size].view(value.shape)
        out.copy_(value, non_blocking=True)
        return out

    def arrived(self) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        """The inputs of the present batch that are on the GPU, by their address here."""
        ahead, self._ahead = self._ahead, {}
        batches = _worker.channel()
        if not ahead or batches is None or self._next != batches.running():
            return {}
        self.stream.wait_event(self._copied)
        for tensor, _ in ahead.values():
            tensor.record_stream(self.stream)
        return ahead

    def finish(self) -> None:
        """Wait for the present batch, and begin with the copies of the next one meanwhile."""
        batches = _worker.channel()
        look = getattr(batches, "ahead", None)
        begun = look is not None and self._begin(look)
        if self._busy and not begun and look is not None:
            self._done.record(self.stream)
            while not begun and not self._done.query():
                time.sleep(_LOOK)
                begun = self._begin(look)
        self.stream.synchronize()
        self._busy = begun

    def _begin(self, look: Callable[[], Any]) -> bool:
        found = look()
        if found is None:
            return False
        self._next, inputs = found
        with torch.cuda.stream(self._copies):
            for array in inputs.values():
                if array.dtype.kind in "biuf":
                    here = torch.from_numpy(array[...])
                    self._ahead[here.data_ptr()] = (here.to("cuda", non_blocking=True), here)
            self._copied.record(self._copies)
        return True


def _there(value: Any, ahead: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """An array on the GPU; anything else, such as strings, as it is."""
    if hasattr(value, "__array__") and getattr(value, "dtype", None) is not None and value.dtype.kind in "biuf":
        here = torch.from_numpy(value)
        found = ahead.get(here.data_ptr())
        if found is not None and found[0].shape == here.shape and found[0].dtype == here.dtype:
            return found[0]
        return here.to("cuda", non_blocking=True)
    return value


def _numpy(value: Any) -> Any:
    return value.numpy() if isinstance(value, torch.Tensor) else value
