"""The end of the server with requests in the batcher: all are answered, and nobody waits for company any more."""

import signal
import time

import pytest

from stage import PROTOCOLS, Stage, echo, good, policy, row, values


@pytest.fixture
def start(serve):
    """A function that starts a server of its own."""
    made: list[Stage] = []

    def begin(*wanted, flags=()) -> Stage:
        made.append(Stage(serve(*flags, wanted=wanted).wait_ready()))
        return made[-1]

    yield begin
    for one in made:
        one.close()


def test_queued_requests_are_served_before_the_end(start):
    stage = start(echo("busy", delay_ms=500, rows=2))
    busy = stage.occupy("busy")
    calls = [stage.send("busy", row(i), via) for i, via in enumerate(PROTOCOLS)]
    stage.await_pending("busy", len(PROTOCOLS))
    stage.server.signal(signal.SIGTERM)
    assert values(busy, *calls) == [0, 0, 1, 2, 3]
    assert stage.server.wait() == 0, stage.server.log


def test_requests_that_wait_for_company_go_at_once(start):
    """Nobody will come any more, so a queue delay of a minute is no reason to stay."""
    stage = start(echo("patient", "max_queue_delay_microseconds: 60000000"))
    calls = [stage.send("patient", row(i), via) for i, via in enumerate(PROTOCOLS)]
    stage.await_pending("patient", len(PROTOCOLS))
    begin = time.monotonic()
    stage.server.signal(signal.SIGTERM)
    assert values(*calls) == [0, 1, 2, 3]
    assert stage.server.wait() == 0, stage.server.log
    assert time.monotonic() - begin < 5


def test_what_times_out_while_the_server_ends_is_refused(start):
    reject = policy(timeout_action="REJECT", default_timeout_microseconds=300_000)
    stage = start(echo("busy", reject, delay_ms=1000))
    busy = stage.occupy("busy")
    (call,) = stage.queue("busy", row(1))
    stage.server.signal(signal.SIGTERM)
    assert call.result(5).error.message() == "Request timeout expired"
    good(busy)
    assert stage.server.wait() == 0, stage.server.log
