"""Instances side by side, and the rate limiter that holds them back."""

import dataclasses

import pytest

import models
from stage import Stage, TooSlow, assert_before, batching, echo, good, order, patient, row, values

SLEEP = models.parameter("execute_delay_ms", 600)
GROUPS = "instance_group [ { count: 1 kind: KIND_CPU }, { count: 1 kind: KIND_CPU } ]\n"

MODELS = [
    echo("two", delay_ms=600, count=2),
    dataclasses.replace(echo("groups"), extra=SLEEP + GROUPS + batching()),
    echo("one", delay_ms=600),
    echo("other"),
]


@pytest.mark.parametrize("model", ["two", "groups"])
@patient
def test_two_slow_requests_run_side_by_side(stage, model):
    first = stage.occupy(model)
    second = stage.send(model, row(2))
    stage.await_busy(model, 2, before=first)
    assert values(first, second) == [0, 2]
    assert stage.metric("shoal_instances", model) == 2
    assert stage.batches(model) == {1: 2}


@patient
def test_while_both_instances_are_busy_requests_gather(stage):
    first = stage.occupy("two")
    second = stage.send("two", row(1))
    stage.await_busy("two", 2, before=first)
    calls = [stage.send("two", row(i)) for i in range(6)]
    stage.await_pending("two", 6)
    assert values(*calls) == list(range(6))
    good(first, second)
    assert stage.batches("two") == {1: 2, 6: 1}, "one instance takes all that wait"


@patient
def test_models_do_not_wait_for_each_other(stage):
    busy = stage.occupy("one")
    good(stage.send("other", row(1)))
    assert_before(busy)
    good(busy)


def limited(name: str, delay_ms: int, priority: int = 1, count: int = 1) -> models.Model:
    """A model whose instance needs one R for each execution."""
    limiter = f'rate_limiter {{ resources [ {{ name: "R" global: true count: {count} }} ] priority: {priority} }}'
    group = f"instance_group [ {{ count: 1 kind: KIND_CPU {limiter} }} ]\n"
    sleep = models.parameter("execute_delay_ms", delay_ms)
    return dataclasses.replace(echo(name, rows=1), extra=sleep + group + batching())


@pytest.fixture
def limits(serve):
    """A function that starts a server with two limited models and flags."""
    made: list[Stage] = []

    def start(*flags: str, wanted: tuple[models.Model, ...]) -> Stage:
        made.append(Stage(serve(*flags, wanted=wanted).wait_ready()))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_models_that_share_a_resource_take_turns(limits):
    stage = limits("--rate-limit=execution_count", wanted=(limited("one", 600), limited("other", 600)))
    first, second = good(stage.occupy("one"), stage.send("other", row(1)))
    assert second.ended - (first.ended - first.seconds) >= 1.2, "they ran at the same time"


@patient
def side_by_side(stage):
    first, second = stage.occupy("one"), stage.send("other", row(1))
    stage.await_busy("other", 1, before=first)
    assert_before(first)
    good(first, second)


@pytest.mark.parametrize("flags", [
    ["--rate-limit=execution_count", "--rate-limit-resource=R:2"],
    ["--rate-limit=off"],
    [],
], ids=["enough of it", "off", "default"])  # fmt: skip
def test_models_run_side_by_side_when_nothing_holds_them(limits, flags):
    stage = limits(*flags, wanted=(limited("one", 500), limited("other", 500)))
    side_by_side(stage)


def test_a_model_of_a_quarter_of_the_weight_runs_a_quarter_as_often(limits):
    """Priority 4 counts each execution four times."""
    wanted = limited("holder", 600), limited("often", 60), limited("seldom", 60, priority=4)
    share(limits("--rate-limit=execution_count", wanted=wanted))


@patient
def share(stage):
    holder = stage.occupy("holder")
    calls = [stage.send(name, row(i)) for name in ("often", "seldom") for i in range(8)]
    for name in ("often", "seldom"):
        stage.await_pending(name, 8, before=holder)
    done = order(*calls)
    good(holder)
    # Those that end close together may be seen in the other order. Were they to take turns it would be five.
    if sum(i < 8 for i in done[:9]) < 7:
        raise TooSlow(f"of the first nine executions eight should be of the first: {done}")


def test_a_resource_that_can_never_be_had_is_a_load_error(serve):
    running = serve("--rate-limit=execution_count", "--rate-limit-resource=R:1", wanted=(limited("one", 0, count=4),))
    assert running.wait() == 1
    for words in ("limited to 1", "required count is 4", "--rate-limit-resource"):
        assert words in running.log, running.log
