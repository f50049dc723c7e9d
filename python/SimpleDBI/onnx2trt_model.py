"""A serialised TensorRT engine in this process, for programs that compare with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from SimpleDBI import _models


class TensorRTModel:
    """Runs an engine: forward(array) returns the output's array, or a tuple of them."""

    def __init__(self, name: str, path: str):
        self.name = name
        self._run = _models.engine(path, 0)

    def forward(self, *arrays: np.ndarray) -> Any:
        outputs = self._run(*arrays)
        return outputs[0] if len(outputs) == 1 else outputs
