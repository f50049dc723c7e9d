"""Trace settings, as a server without a trace file answers them."""

from __future__ import annotations

import json

import pytest
from tritonclient.utils import InferenceServerException

import clients
import models
import server

START = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0", "trace_file": "", "trace_mode": "triton"}


@pytest.fixture
def running(serve):
    return serve(wanted=(models.slow("m", 0),)).wait_ready()


def plain(answer) -> dict:
    """The settings of either protocol in the form of HTTP."""
    if "settings" not in answer:
        return answer
    values = {name: v.get("value", []) for name, v in answer["settings"].items()}
    return {name: v if name == "trace_level" else v[0] for name, v in values.items()}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_settings_of_the_server_and_of_a_model(running, protocol):
    client = clients.LIBRARIES[protocol].InferenceServerClient(getattr(running, protocol))
    json_too = {"as_json": True} if protocol == "grpc" else {}

    def update(**more) -> dict:
        return plain(client.update_trace_settings(**more, **json_too))

    assert plain(client.get_trace_settings(**json_too)) == START
    assert plain(client.get_trace_settings("m", **json_too)) == START
    assert update(settings={"trace_rate": "7"}) == {**START, "trace_rate": "7"}
    assert update(model_name="m", settings={"trace_rate": "5", "trace_count": "3"}) == {**START, "trace_rate": "5", "trace_count": "3"}
    assert update(model_name="m", settings={"trace_rate": None}) == {**START, "trace_rate": "7", "trace_count": "3"}
    assert update(settings={"trace_rate": None}) == START
    for given, text in (
        ({"trace_level": ["TIMESTAMPS"]}, "Attempting to set invalid trace setting :trace file name is not given"),
        ({"trace_rate": "often"}, "Unable to parse 'trace_rate', got: often"),
    ):
        with pytest.raises(InferenceServerException) as caught:
            update(settings=given)
        assert caught.value.message() == text and caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    with pytest.raises(InferenceServerException) as caught:
        client.get_trace_settings("nosuch")
    assert caught.value.message() == "Request for unknown model : nosuch"


def test_answers_over_http(running):
    answer = server.get(running.http, "/v2/trace/setting")
    assert answer.status == 200 and list(json.loads(answer.body)) == list(START)
    answer = server.post(running.http, "/v2/trace/setting", '{"trace_rate": 5}')
    assert (answer.status, clients.error_of(answer)) == (500, "attempt to access JSON non-string as string")
    assert json.loads(server.post(running.http, "/v2/models/m/trace/setting").body) == START
    assert server.get(running.http, "/v2/models/m/versions/1/trace/setting").status == 404
