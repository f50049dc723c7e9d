"""Batching without settings, and by Triton's rules where the model or the server asks for them."""

import json
import subprocess

import pytest

import models
import server
from stage import TooSlow, echo, patient

MODELS = [
    echo("learns", delay_ms=20),
    models.with_extra(echo("by_rules", delay_ms=20), models.parameter("SHOAL_BATCHING", "triton")),
]


@pytest.mark.parametrize("model, low, high", [("learns", 1.6, 2), ("by_rules", 1, 1.4)])
@patient
def test_two_callers_share_batches_or_take_turns(stage, model, low, high):
    """Two callers who ask again at once: they settle into one group, or into two that alternate."""
    stage.watch(model)
    load = ["perf", "-m", model, "-u", stage.http, "--shape", "INPUT0:4", "--concurrency-range", "2", "--request-count", "120"]
    subprocess.run([server.BINARY, *load], check=True, capture_output=True, timeout=60)
    stats = stage.stats(model)
    mean = stats["inference_count"] / stats["execution_count"]
    if not low <= mean <= high:
        raise TooSlow(f"the mean batch was {mean:.2f}, want {low} to {high}")


@pytest.mark.parametrize("flag, batches", [("", False), ("--batching=auto", True), ("--batching=triton", False)])
def test_the_server_may_batch_what_does_not_ask_for_it(serve, flag, batches):
    """Ten requests at once for a model that allows batches and does not ask for them, on one instance that is busy."""
    running = serve(*filter(None, [flag]), wanted=(models.slow("plain", 50, 1, max_batch_size=8),)).wait_ready()
    load = ["perf", "-m", "plain", "-u", running.http, "--shape", "INPUT0:4", "--concurrency-range", "10", "--request-count", "40"]
    subprocess.run([server.BINARY, *load], check=True, capture_output=True, timeout=60)
    stats = json.loads(server.get(running.http, "/v2/models/plain/stats").body)["model_stats"][0]
    assert (stats["execution_count"] < stats["inference_count"]) == batches
