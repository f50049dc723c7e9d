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

The inputs are copied on a stream of the model's own, from memory that is pinned; the outputs come back into pinned memory. Predict
runs in torch.inference_mode.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch

__all__ = ["on_gpu"]


def on_gpu(predict: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a predict that takes and returns CUDA tensors: one, a tuple or a dict of them."""
    lane: dict[str, torch.cuda.Stream] = {}
    pinned: dict[tuple[Any, torch.dtype], torch.Tensor] = {}

    def back(key: Any, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_cuda:
            return value
        size = value.numel()
        host = pinned.get((key, value.dtype))
        if host is None or host.numel() < size:
            host = pinned[key, value.dtype] = torch.empty(max(size, 2 * (host.numel() if host is not None else 0)), dtype=value.dtype, pin_memory=True)
        out = host[:size].view(value.shape)
        out.copy_(value, non_blocking=True)
        return out

    @functools.wraps(predict)
    def run(self: Any, *args: Any, **named: Any) -> Any:
        stream = lane.get("stream")
        if stream is None:
            stream = lane["stream"] = torch.cuda.Stream()
        with torch.inference_mode(), torch.cuda.stream(stream):
            result = predict(self, *map(_there, args), **{k: _there(v) for k, v in named.items()})
            if isinstance(result, dict):
                result = {k: back(k, v) for k, v in result.items()}
            elif isinstance(result, (tuple, list)):
                result = tuple(back(i, v) for i, v in enumerate(result))
            else:
                result = back(0, result)
            stream.synchronize()
        if isinstance(result, dict):
            return {k: _numpy(v) for k, v in result.items()}
        return tuple(map(_numpy, result)) if isinstance(result, tuple) else _numpy(result)

    return run


def _there(value: Any) -> Any:
    """An array on the GPU; anything else, such as strings, as it is."""
    if hasattr(value, "__array__") and getattr(value, "dtype", None) is not None and value.dtype.kind in "biuf":
        return torch.from_numpy(value).to("cuda", non_blocking=True)
    return value


def _numpy(value: Any) -> Any:
    return value.numpy() if isinstance(value, torch.Tensor) else value
