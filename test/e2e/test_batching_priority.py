"""Priorities: urgent requests overtake, and each level has its own queue policy."""

from stage import TooSlow, assert_before, echo, good, order, patient, row

BY_LEVEL = (
    "priority_levels: 2 default_priority_level: 1",
    "priority_queue_policy { key: 2 value { default_timeout_microseconds: 150000 max_queue_size: 1 } }",
)

MODELS = [
    echo("levels", "priority_levels: 3 default_priority_level: 2", delay_ms=400, rows=1),
    echo("company", "priority_levels: 2 default_priority_level: 2", delay_ms=400, rows=2),
    echo("off", delay_ms=300, rows=1),
    echo("by_level", *BY_LEVEL, delay_ms=500, rows=1),
]


@patient
def test_urgent_requests_overtake(stage):
    busy = stage.occupy("levels")
    given = [3, 0, 99, 1]  # 0 and what is beyond the levels count as the default, 2
    calls = [stage.queue("levels", row(i), priority=p)[0] for i, p in enumerate(given)]
    assert order(*calls) == [3, 1, 2, 0]
    good(busy)


@patient
def test_less_urgent_requests_fill_up_a_batch(stage):
    busy = stage.occupy("company")
    low = stage.queue("company", row(1), row(2), priority=2)
    high = stage.queue("company", row(3), priority=1)
    outcomes = good(*low, *high)
    assert stage.batches("company") == {1: 2, 2: 1}
    assert outcomes[1].ended == max(o.ended for o in outcomes), "the second low one goes with the batch after"
    good(busy)


@patient
def test_without_levels_a_priority_means_nothing(stage):
    busy = stage.occupy("off")
    calls = [stage.queue("off", row(i), priority=p)[0] for i, p in enumerate([3, 1])]
    assert order(*calls) == [0, 1]
    good(busy)


@patient
def test_each_level_has_its_own_policy(stage):
    busy = stage.occupy("by_level")
    (low,) = stage.queue("by_level", row(1), priority=2)
    refused = stage.infer("by_level", row(2), priority=2)
    if low.done():
        raise TooSlow("the place in the queue was free again")
    assert "Exceeds maximum queue size" in refused.error.message()
    high = [stage.send("by_level", row(3), priority=1) for _ in range(2)]
    assert low.result(5).error.message() == "Request timeout expired"
    assert_before(busy)
    good(busy, *high)
