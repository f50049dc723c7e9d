"""Queue policies: requests that wait too long are refused or set back, and a queue that is full takes no more."""

import time

import pytest

from server import wait_until
from stage import PROTOCOLS, assert_before, assert_within, echo, good, order, patient, policy, row

BUSY_MS = 1000
SLACK = 0.4  # seconds: Triton, which looks every 500 ms, is up to 0.5 late
REJECT = policy(timeout_action="REJECT", default_timeout_microseconds=200_000)
OVERRIDE = policy(timeout_action="REJECT", default_timeout_microseconds=500_000, allow_timeout_override="true")
FIXED = policy(timeout_action="REJECT", default_timeout_microseconds=500_000)
DELAY = policy(timeout_action="DELAY", default_timeout_microseconds=60_000_000, allow_timeout_override="true")
UNAVAILABLE = {"http": "503"}  # the other protocols have gRPC's code

MODELS = [
    echo("reject", REJECT, delay_ms=BUSY_MS),
    echo("in_time", policy(timeout_action="REJECT", default_timeout_microseconds=20_000_000), delay_ms=300),
    echo("alone", REJECT, "max_queue_delay_microseconds: 60000000"),
    echo("override", OVERRIDE, delay_ms=BUSY_MS),
    echo("fixed", FIXED, delay_ms=BUSY_MS),
    echo("set_back", DELAY, delay_ms=500, rows=1),
    echo("full", policy(max_queue_size=2), delay_ms=500),
    echo("unbatched", policy(max_queue_size=1), delay_ms=300, rows=0),
]


def assert_unavailable(outcome, via: str) -> None:
    if via == "stream":  # the text is all that a stream carries
        return
    assert outcome.code == UNAVAILABLE.get(via, "StatusCode.UNAVAILABLE")


def expire(stage, model: str, via: str = "grpc", **parameters) -> float:
    """Sends a request that times out in the queue; returns after how long, by the server's own clock."""
    outcome = stage.infer(model, row(1), via=via, **parameters)
    assert outcome.error is not None, "it was served"
    assert outcome.error.message() == "Request timeout expired"
    assert_unavailable(outcome, via)
    failed = stage.stats(model)["inference_stats"]["fail"]
    assert failed["count"] == 1
    return failed["ns"] / 1e9


@pytest.mark.parametrize("via", PROTOCOLS)
@patient
def test_a_request_that_waited_too_long_is_refused_on_time(stage, via):
    """The instance is busy for much longer: the answer must not wait for it."""
    busy = stage.occupy("reject")
    assert_within(0.2, expire(stage, "reject", via), 0.2 + SLACK)
    assert_before(busy)
    assert stage.failures("reject") == {"REJECTED": 1}
    good(busy)
    assert stage.batches("reject") == {1: 1}, "the refused request ran"


def test_a_request_that_is_served_in_time_is_not_refused(stage):
    good(stage.occupy("in_time"), stage.send("in_time", row(1)))
    assert stage.failures("in_time") == {}


@patient
def test_the_timeout_ends_a_wait_for_company(stage):
    """Nothing is busy: the request waits for others, longer than it may."""
    assert_within(0.2, expire(stage, "alone"), 0.2 + SLACK)
    assert stage.pending("alone") == 0 and stage.batches("alone") == {}


@pytest.mark.parametrize("model, asks", [
    ("override", {150_000: 0.15, 60_000_000: 0.5, None: 0.5}),
    ("fixed", {150_000: 0.5}),
])  # fmt: skip
@patient
def test_a_request_may_shorten_its_timeout_where_that_is_allowed(stage, model, asks):
    busy = stage.occupy(model)
    calls = {(via, asked): stage.send(model, row(1), via, timeout=asked) for via in ("http", "grpc") for asked in asks}
    for (_, asked), call in calls.items():
        outcome = call.result(10)
        assert outcome.error is not None and outcome.error.message() == "Request timeout expired"
        assert_within(asks[asked], outcome.seconds, asks[asked] + SLACK)
    good(busy)


@patient
def test_a_request_that_waited_too_long_may_be_set_back_instead(stage):
    """One that came later overtakes it, and it is served all the same."""
    busy = stage.occupy("set_back")
    (late,) = stage.queue("set_back", row(1), timeout=100_000)
    queued = time.monotonic()
    wait_until(lambda: time.monotonic() - queued > 0.2, 1, "the timeout of 100 ms")
    (fresh,) = stage.queue("set_back", row(2))
    assert order(busy, late, fresh) == [0, 2, 1]
    assert stage.failures("set_back") == {}


@pytest.mark.parametrize("via", PROTOCOLS)
@patient
def test_a_full_queue_refuses_at_once_and_says_what_to_raise(stage, via):
    busy = stage.occupy("full")
    waiting = stage.queue("full", row(1), row(2))
    outcome = stage.infer("full", row(3), via=via, request_id="7")
    assert_before(busy)
    assert_unavailable(outcome, via)
    text = outcome.error.message()
    assert text.startswith("[request id: 7] Exceeds maximum queue size")
    assert "'full'" in text and " 2 " in text and "max_queue_size" in text and "instances" in text
    good(busy, *waiting)
    got = stage.stats("full")["inference_stats"]
    assert (got["success"]["count"], got["fail"]["count"]) == (3, 0)
    assert stage.failures("full") == {}
    assert stage.grown("shoal_requests_refused_total", "full") == 1
    assert stage.pending("full") == 0


@patient
def test_a_queue_policy_holds_for_a_model_without_a_batch_dimension(stage):
    one = row(1)[0]
    busy = stage.occupy("unbatched", one)
    waiting = stage.queue("unbatched", one)
    outcome = stage.infer("unbatched", one)
    assert_before(busy)
    assert "Exceeds maximum queue size" in outcome.error.message()
    good(busy, *waiting)
