"""When a batch goes: the queue delay, preferred sizes, and requests that gather while an instance is busy."""

import queue

import pytest
import tritonclient.grpc as library

from stage import PROTOCOLS, assert_within, echo, good, inputs, patient, row, rows, values

DELAY = 0.6  # long enough for two clients to be quick in, on a busy machine
PREFERRED = ("preferred_batch_size: [ 2, 6 ]", "max_queue_delay_microseconds: 60000000")
AT_ONCE = 10  # seconds: nowhere near the delay of a minute

MODELS = [
    echo("pair", f"max_queue_delay_microseconds: {int(DELAY * 1e6)}"),
    echo("preferred", *PREFERRED),
    echo("eager"),
    echo("slow", delay_ms=400),
    echo("wide", "max_queue_delay_microseconds: 60000000", rows=200),
]


@pytest.mark.parametrize("via", [(p, p) for p in PROTOCOLS] + [("http", "grpc")], ids="-".join)
@patient
def test_two_requests_within_the_delay_make_one_batch(stage, via):
    calls = [stage.send("pair", row(i + 1.5), via=v) for i, v in enumerate(via)]
    stage.await_pending("pair", 2, before=calls[0])
    assert values(*calls) == [1.5, 2.5], "an answer has the other request's values"
    got = stage.stats("pair")
    assert stage.batches("pair") == {2: 1}
    assert (got["inference_count"], got["execution_count"]) == (2, 1)
    assert got["inference_stats"]["success"]["count"] == 2
    metrics = ("nv_inference_request_success", "nv_inference_count", "nv_inference_exec_count")
    assert [stage.grown(m, "pair") for m in metrics] == [2, 2, 1]
    assert stage.grown("shoal_batches_total", "pair", reason="delay") == 1


@pytest.mark.parametrize("sizes, want", [
    ([2], {2: 1}),
    ([6], {6: 1}),
    ([7], {7: 1}),
    ([1, 1], {2: 1}),
    ([3, 1, 2], {6: 1}),
    ([3, 7], {3: 1, 7: 1}),
], ids=str)  # fmt: skip
def test_preferred_sizes_go_at_once(stage, sizes, want):
    waiting = stage.queue("preferred", *(rows(n) for n in sizes[:-1]))
    last = stage.send("preferred", rows(sizes[-1]))
    assert all(o.seconds < AT_ONCE for o in good(*waiting, last))
    assert stage.batches("preferred") == want


def test_what_would_pass_the_largest_preferred_size_sends_the_others_ahead(stage):
    first = stage.queue("preferred", rows(3))
    second = stage.send("preferred", rows(4))
    good(*first)
    stage.await_pending("preferred", 1)
    assert stage.batches("preferred") == {3: 1}
    third = stage.send("preferred", rows(2))
    good(second, third)
    assert stage.batches("preferred") == {3: 1, 6: 1}


def test_a_size_between_the_preferred_ones_waits(stage):
    waiting = stage.queue("preferred", rows(1), rows(3))  # seen to wait, so neither 1 nor 4 went
    assert stage.batches("preferred") == {}
    good(stage.send("preferred", rows(2)), *waiting)
    assert stage.batches("preferred") == {6: 1}


def test_the_reason_is_counted_of_a_preferred_size_and_of_a_full_batch(stage):
    good(stage.send("preferred", rows(2)), stage.send("preferred", rows(8)))
    assert stage.grown("shoal_batches_total", "preferred", reason="preferred") == 1
    assert stage.grown("shoal_batches_total", "preferred", reason="full") == 1


@pytest.mark.parametrize("via", ["http", "grpc"])
@patient
def test_a_lone_request_waits_the_delay_and_no_more(stage, via):
    (outcome,) = good(stage.send("pair", row(1), via=via))
    assert outcome.seconds >= DELAY
    assert stage.batches("pair") == {1: 1}
    assert_within(DELAY, stage.stats("pair")["inference_stats"]["queue"]["ns"] / 1e9, DELAY + 0.15)


@patient
def test_without_a_delay_a_request_runs_at_once(stage):
    for _ in range(3):
        good(stage.send("eager", row(1)))
    got = stage.stats("eager")["inference_stats"]["queue"]
    assert stage.batches("eager") == {1: 3} and got["count"] == 3
    assert_within(0, got["ns"] / 1e9, 0.15)


@patient
def test_the_delay_is_that_of_the_first_request(stage):
    """The second comes while the first waits, and both go when the first has waited long enough."""
    (first,) = stage.queue("pair", row(1))
    second = stage.send("pair", row(2))
    stage.await_pending("pair", 2, before=first)
    good(first, second)
    assert stage.batches("pair") == {2: 1}
    waited = stage.stats("pair")["inference_stats"]["queue"]["ns"] / 1e9  # of both together
    assert_within(DELAY, waited, 2 * DELAY)


@patient
def test_requests_gather_while_the_instance_is_busy(stage):
    busy = stage.occupy("slow")
    calls = [stage.send("slow", row(i)) for i in range(1, 6)]
    stage.await_pending("slow", 5)
    assert values(busy, *calls) == [0, 1, 2, 3, 4, 5]
    assert stage.batches("slow") == {1: 1, 5: 1}


@patient
def test_what_does_not_fit_makes_the_next_batch(stage):
    busy = stage.occupy("slow")
    calls = [stage.send("slow", row(i)) for i in range(12)]
    stage.await_pending("slow", 12)
    assert values(*calls) == list(range(12))
    good(busy)
    assert stage.batches("slow") == {1: 1, 8: 1, 4: 1}


def test_one_stream_alone_fills_a_batch(stage):
    """As many requests of one stream are in flight as the model takes at once."""
    answers: queue.Queue = queue.Queue()
    stage.watch("wide")
    with library.InferenceServerClient(stage.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for i in range(200):
            client.async_stream_infer("wide", inputs(library, row(i)))
        for i in range(200):
            result, error = answers.get(timeout=30)
            assert error is None, error
            assert float(result.as_numpy("OUTPUT0")[0, 0]) == i
    assert stage.batches("wide") == {200: 1}
