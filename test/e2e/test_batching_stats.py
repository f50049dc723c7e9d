"""Statistics and metrics after a mix of requests of which every one is known."""

import dataclasses
import time

import pytest
import tritonclient.grpc as library
from tritonclient.utils import InferenceServerException

from stage import TRIES, TooSlow, echo, good, inputs, policy, row, rows

EXECUTION = 0.8  # seconds
LIMITS = policy(
    timeout_action="REJECT", default_timeout_microseconds=60_000_000, allow_timeout_override="true", max_queue_size=3
)
MODELS = [*(echo(f"mix{i}", LIMITS, delay_ms=int(EXECUTION * 1000)) for i in range(TRIES)), echo("unused")]


@dataclasses.dataclass(frozen=True)
class Mix:
    """A model that was sent the mix, and its statistics after that."""

    model: str
    began: float
    stats: dict


@pytest.fixture(scope="module")
def mix(shared_stage) -> Mix:
    for i in range(TRIES - 1):
        try:
            return send(shared_stage, f"mix{i}")
        except TooSlow:
            pass
    return send(shared_stage, f"mix{TRIES - 1}")


def send(stage, model: str) -> Mix:
    """Sends a batch of 2 rows of one request, one of 3 rows of two, and four requests that come to nothing."""
    began = time.time()
    busy = stage.occupy(model, rows(2))
    waiting = stage.queue(model, rows(2, 5), rows(1, 6))
    (late,) = stage.queue(model, row(7), timeout=100_000)
    refused = stage.infer(model, row(8))
    if late.done():
        raise TooSlow("the place in the queue was free again")
    assert "Exceeds maximum queue size" in refused.error.message()
    assert late.result(5).error.message() == "Request timeout expired"
    with library.InferenceServerClient(stage.grpc) as client:
        call = client.async_infer(model, inputs(library, row(9)), lambda result, error: None)
        stage.await_pending(model, 3)
        call.cancel()
        stage.await_pending(model, 2)
        with pytest.raises(InferenceServerException):
            client.infer(model, inputs(library, rows(9)))  # more rows than max_batch_size
    good(busy, *waiting)
    stage.await_busy(model, 0)
    return Mix(model, began, stage.stats(model))


def counts(stats: dict) -> dict[str, int]:
    return {name: duration["count"] for name, duration in stats["inference_stats"].items()}


def seconds(stats: dict, name: str) -> float:
    return stats["inference_stats"][name]["ns"] / 1e9


def test_requests_are_counted_by_what_became_of_them(mix):
    stats = mix.stats
    assert counts(stats) == {
        "success": 3,
        "fail": 2,  # timed out, cancelled; what was refused at the door is counted nowhere
        "queue": 3,
        "compute_input": 3,
        "compute_infer": 3,
        "compute_output": 3,
        "cache_hit": 0,
        "cache_miss": 0,
    }


def test_rows_and_executions_are_counted(mix):
    stats = mix.stats
    assert (stats["inference_count"], stats["execution_count"]) == (5, 2)
    assert mix.began * 1000 - 1 <= int(stats["last_inference"]) <= time.time() * 1000


def test_batch_stats_have_a_line_for_each_size(mix):
    stats = mix.stats
    assert set(stats["batch_stats"]) == {2, 3}
    for line in stats["batch_stats"].values():
        assert [line[f"compute_{part}"]["count"] for part in ("input", "infer", "output")] == [1, 1, 1]
        assert EXECUTION <= line["compute_infer"]["ns"] / 1e9 < EXECUTION * 1.5


def test_the_requests_of_a_batch_have_its_times_each(mix):
    """Three requests in two executions of 0.8 s: 2.4 s."""
    stats = mix.stats
    by_size = {size: line["compute_infer"]["ns"] for size, line in stats["batch_stats"].items()}
    assert seconds(stats, "compute_infer") == pytest.approx((by_size[2] + 2 * by_size[3]) / 1e9)
    parts = sum(seconds(stats, part) for part in ("queue", "compute_input", "compute_infer", "compute_output"))
    assert parts <= seconds(stats, "success") < parts + 0.5


def test_failures_have_their_time_and_reason(shared_stage, mix):
    stats = mix.stats
    assert 0.1 <= seconds(stats, "fail") < 2 * EXECUTION
    assert shared_stage.failures(mix.model) == {"REJECTED": 1, "CANCELED": 1}
    assert shared_stage.grown("shoal_requests_refused_total", mix.model) == 1


def test_metrics_say_the_same_as_statistics(shared_stage, mix):
    stats = mix.stats
    inference = stats["inference_stats"]
    want = {
        "nv_inference_request_success": 3,
        "nv_inference_count": 5,
        "nv_inference_exec_count": 2,
        "nv_inference_request_duration_us": inference["success"]["ns"] // 1000,
        "nv_inference_queue_duration_us": inference["queue"]["ns"] // 1000,
        "nv_inference_compute_input_duration_us": inference["compute_input"]["ns"] // 1000,
        "nv_inference_compute_infer_duration_us": inference["compute_infer"]["ns"] // 1000,
        "nv_inference_compute_output_duration_us": inference["compute_output"]["ns"] // 1000,
        "nv_inference_pending_request_count": 0,
    }
    assert {name: shared_stage.metric(name, mix.model) for name in want} == want


def test_grpc_has_the_same_statistics_as_http(shared_stage, mix):
    stats = mix.stats
    with library.InferenceServerClient(shared_stage.grpc) as client:
        got = client.get_inference_statistics(mix.model, as_json=True)["model_stats"][0]
    assert int(got["inference_count"]) == stats["inference_count"]
    assert int(got["execution_count"]) == stats["execution_count"]
    for name, duration in stats["inference_stats"].items():
        ours = got["inference_stats"].get(name, {})  # what is zero is left out
        assert {k: int(ours.get(k, 0)) for k in ("count", "ns")} == duration, name
    assert [int(b["batch_size"]) for b in got["batch_stats"]] == list(stats["batch_stats"])


def test_a_model_that_nobody_asked_has_zeros(shared_stage):
    stats = shared_stage.totals("unused")
    assert set(counts(stats).values()) == {0}
    assert (stats["inference_count"], stats["execution_count"], stats["last_inference"]) == (0, 0, "0")
    assert stats["batch_stats"] == {}
