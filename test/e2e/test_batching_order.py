"""preserve_ordering: answers leave in the order in which their requests came, over all instances."""

import models
from stage import TooSlow, echo, good, patient, row, values

# The second instance takes four times as long as the first, and work goes to it first: an idle
# instance that was used last is taken first, and of unused ones the last.
FAST, SLOW = 0.2, 0.8


def uneven(name: str, *lines: str) -> models.Model:
    made = echo(name, *lines, delay_ms=int(FAST * 1000), count=2, rows=1)
    return models.with_extra(made, models.parameter("instance_wise_delay_multiplier", int(SLOW / FAST)))


MODELS = [uneven("ordered", "preserve_ordering: true"), uneven("unordered")]


def two(stage, model: str):
    """Sends a request to the slow instance and, while that runs, one to the fast one; returns how each fared."""
    first = stage.occupy(model)
    second = stage.send(model, row(2))
    stage.await_busy(model, 2, before=first)
    outcomes = good(first, second)
    if outcomes[0].seconds < SLOW:
        raise TooSlow("the first went to the fast instance, since that was used last")
    assert values(first, second) == [0, 2]
    return outcomes


@patient
def test_without_ordering_a_later_request_overtakes(stage):
    first, second = two(stage, "unordered")
    if second.ended > first.ended - 0.05:
        raise TooSlow("the second was not answered before the first")


@patient
def test_with_ordering_a_later_request_waits_for_the_answer_before_it(stage):
    first, second = two(stage, "ordered")
    assert second.ended > first.ended - 0.05, "it overtook"  # they leave together, on two connections


@patient
def test_the_instance_of_a_held_answer_goes_on_working(stage):
    """While the slow instance runs one request, the fast one runs two; their answers come together."""
    first = stage.occupy("ordered")
    rest = [stage.send("ordered", row(i)) for i in (1, 2)]
    outcomes = good(first, *rest)
    assert min(o.ended for o in outcomes) > outcomes[0].ended - 0.05, "it overtook"
    if max(o.ended for o in outcomes) > outcomes[0].ended + FAST:
        raise TooSlow("a request was run only after the slow one")
