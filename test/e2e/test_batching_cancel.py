"""A client that goes away takes its queued request along; what is running is finished and thrown away."""

import asyncio
import json
from concurrent import futures

import numpy as np
import pytest
import tritonclient.grpc as library
import tritonclient.grpc.aio

import rawhttp
from stage import assert_before, echo, good, inputs, patient, row

BODY = {"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "data": [5]}]}
WAYS = ["http", "grpc", "deadline", "aio", "stream"]

MODELS = [
    echo("busy", delay_ms=900),
    echo("waiting", "max_queue_delay_microseconds: 60000000"),
    echo("among", "preferred_batch_size: [ 3 ] max_queue_delay_microseconds: 60000000"),
    echo("running", delay_ms=600),
    echo("both", "default_queue_policy { max_queue_size: 1 }", delay_ms=600),
]


class Caller:
    """A request that can be taken back. send returns at once, leave takes it back."""

    def __init__(self, stage, model: str):
        self.stage, self.model = stage, model
        self.over: futures.Future | None = None  # ends with the request, where the client tells
        stage.watch(model)

    def close(self) -> None:
        """Cleans up after leave."""


class Http(Caller):
    def send(self) -> None:
        self.sock = rawhttp.connect(self.stage.http)
        self.sock.sendall(rawhttp.request(f"/v2/models/{self.model}/infer", json.dumps(BODY).encode()))

    def leave(self) -> None:
        self.sock.close()


class Grpc(Caller):
    timeout: float | None = None

    def send(self) -> None:
        self.over = futures.Future()
        self.client = library.InferenceServerClient(self.stage.grpc)
        self.call = self.client.async_infer(
            self.model,
            inputs(library, row(5)),
            lambda result, error: self.over.set_result(error),
            client_timeout=self.timeout,
        )

    def leave(self) -> None:
        self.call.cancel()

    def close(self) -> None:
        assert self.over.result(10) is not None, "it was answered well"
        self.client.close()


class Deadline(Grpc):
    timeout = 0.5  # seconds: time enough to be seen in the queue

    def leave(self) -> None:
        pass  # it passes by itself


class Aio(Caller):
    def send(self) -> None:
        self.call = asyncio.run_coroutine_threadsafe(self.run(), self.stage.loop)

    async def run(self):
        async with tritonclient.grpc.aio.InferenceServerClient(self.stage.grpc) as client:
            await client.infer(self.model, inputs(library, row(5)))

    def leave(self) -> None:
        self.call.cancel()


class Stream(Caller):
    def send(self) -> None:
        self.client = library.InferenceServerClient(self.stage.grpc)
        self.client.start_stream(lambda result, error: None)
        self.client.async_stream_infer(self.model, inputs(library, row(5)))

    def leave(self) -> None:
        self.client.stop_stream(cancel_requests=True)

    def close(self) -> None:
        self.client.close()


CALLERS = {"http": Http, "grpc": Grpc, "deadline": Deadline, "aio": Aio, "stream": Stream}


@pytest.mark.parametrize("way", WAYS)
@patient
def test_a_request_behind_a_busy_instance_leaves_with_its_client(stage, way):
    busy = stage.occupy("busy")
    caller = CALLERS[way](stage, "busy")
    caller.send()
    stage.await_pending("busy", 1, before=caller.over or busy)
    caller.leave()
    stage.await_pending("busy", 0)
    assert_before(busy)
    caller.close()
    good(busy)
    stage.await_busy("busy", 0)
    assert stage.batches("busy") == {1: 1}, "the cancelled request ran"
    assert stage.failures("busy") == {"CANCELED": 1}
    got = stage.stats("busy")["inference_stats"]
    assert (got["success"]["count"], got["fail"]["count"]) == (1, 1)


@pytest.mark.parametrize("way", WAYS)
@patient
def test_a_request_that_waits_for_company_leaves_with_its_client(stage, way):
    caller = CALLERS[way](stage, "waiting")
    caller.send()
    stage.await_pending("waiting", 1, before=caller.over)
    caller.leave()
    stage.await_pending("waiting", 0)
    caller.close()
    assert stage.batches("waiting") == {}
    assert stage.failures("waiting") == {"CANCELED": 1}


def test_the_others_of_a_batch_do_not_notice(stage):
    """The one in the middle leaves; those before and after it wait on, until a third makes the batch."""
    (first,) = stage.queue("among", row(1))
    caller = Grpc(stage, "among")
    caller.send()
    stage.await_pending("among", 2)
    caller.leave()
    caller.close()
    stage.await_pending("among", 1)
    (second,) = stage.queue("among", row(2))
    third = stage.send("among", row(3))
    assert [o.array.flat[0] for o in good(first, second, third)] == [1, 2, 3]
    assert stage.batches("among") == {3: 1}


def test_many_requests_of_one_stream_leave_together(stage):
    stage.watch("waiting")
    client = library.InferenceServerClient(stage.grpc)
    client.start_stream(lambda result, error: None)
    for _ in range(5):
        client.async_stream_infer("waiting", inputs(library, row(5)))
    stage.await_pending("waiting", 5)
    client.stop_stream(cancel_requests=True)
    client.close()
    stage.await_pending("waiting", 0)
    assert stage.batches("waiting") == {}
    assert stage.failures("waiting") == {"CANCELED": 5}


@patient
def test_a_request_that_leaves_makes_room_in_a_full_queue(stage):
    busy = stage.occupy("both")
    caller = Grpc(stage, "both")
    caller.send()
    stage.await_pending("both", 1)
    refused = stage.infer("both", row(1))
    assert_before(busy)
    assert "Exceeds maximum queue size" in refused.error.message()
    caller.leave()
    stage.await_pending("both", 0)
    caller.close()
    good(busy, stage.send("both", row(2)))


@pytest.mark.parametrize("way", ["http", "grpc"])
@patient
def test_what_runs_already_is_finished_and_thrown_away(stage, way):
    caller = CALLERS[way](stage, "running")
    caller.send()
    stage.await_busy("running", 1, before=caller.over)
    caller.leave()
    (answer,) = good(stage.send("running", row(7)))
    np.testing.assert_array_equal(answer.array, row(7))
    caller.close()
    stage.await_pending("running", 0)
    stage.await_busy("running", 0)
