"""SHOAL_GATHER: whether requests that are about to arrive join a batch that is about to start."""

import subprocess

import pytest

import models
import server
from stage import TooSlow, echo, patient

MODELS = [
    echo("gathers", delay_ms=20),
    models.with_extra(echo("as_it_is", delay_ms=20), models.parameter("SHOAL_GATHER", "no")),
]


@pytest.mark.parametrize("model, low, high", [("gathers", 1.6, 2), ("as_it_is", 1, 1.4)])
@patient
def test_two_callers_share_batches_or_take_turns(stage, model, low, high):
    """Two callers who ask again at once: they settle into one group, or into two that alternate."""
    stage.watch(model)
    load = ["perf", "-m", model, "-u", stage.http, "--shape", "INPUT0:4", "--concurrency-range", "2", "--request-count", "60"]
    subprocess.run([server.BINARY, *load], check=True, capture_output=True, timeout=60)
    stats = stage.stats(model)
    mean = stats["inference_count"] / stats["execution_count"]
    if not low <= mean <= high:
        raise TooSlow(f"the mean batch was {mean:.2f}, want {low} to {high}")
