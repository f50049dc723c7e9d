"""The settings of the log, shown and changed while the server runs."""

from __future__ import annotations

import json

import pytest
from tritonclient.utils import InferenceServerException

import clients
import models
import server

START = {"log_file": "", "log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0, "log_format": "default"}


@pytest.fixture
def running(serve):
    return serve(wanted=(models.slow("m", 0),)).wait_ready()


def settings(client) -> dict:
    return client.get_log_settings(as_json=True) if "grpc" in type(client).__module__ else client.get_log_settings()


def plain(answer: dict) -> dict:
    """The settings of either protocol as plain values."""
    if "settings" not in answer:
        return answer
    values = {name: next(iter(v.values()), None) for name, v in answer["settings"].items()}
    values["log_verbose_level"] = values["log_verbose_level"] or 0
    return values


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_settings_are_shown_and_changed(running, protocol):
    client = clients.LIBRARIES[protocol].InferenceServerClient(getattr(running, protocol))
    assert plain(settings(client)) == START
    # At level 1 each rejected request is logged.
    assert clients.infer_json(running.http, "{}", model="first").status == 404
    client.update_log_settings({"log_verbose_level": 1, "log_format": "ISO8601"})
    assert plain(settings(client)) == {**START, "log_verbose_level": 1, "log_format": "ISO8601"}
    assert clients.infer_json(running.http, "{}", model="second").status == 404
    running.wait_for_log(r"time=\"?\d{4}-\d\d-\d\dT[0-9:]+Z\"? level=DEBUG.*second")
    assert "first" not in running.log
    client.update_log_settings({"log_verbose_level": 0, "log_format": "default", "log_info": False})
    assert plain(settings(client)) == {**START, "log_info": False}


@pytest.mark.parametrize(
    "given, code, text",
    [
        ({"log_file": "/tmp/elsewhere"}, ("501", "StatusCode.UNIMPLEMENTED"), "log file location can not be updated through network protocol"),
        ({"log_format": "fancy"}, ("503", "StatusCode.INVALID_ARGUMENT"), "log_format, got: fancy"),
    ],
)
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_bad_settings_are_refused(running, protocol, given, code, text):
    client = clients.LIBRARIES[protocol].InferenceServerClient(getattr(running, protocol))
    with pytest.raises(InferenceServerException) as caught:
        client.update_log_settings({"log_info": False, **given})
    assert caught.value.status() in code and caught.value.message().endswith(text)
    assert plain(settings(client)) == START


@pytest.mark.parametrize(
    "body, status, error",
    [
        ('{"nope": 1}', 200, None),
        ('{"log_info": "yes"}', 500, "attempt to access JSON non-boolean as boolean"),
        ('{"log_verbose_level": -1}', 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ('{"log_format": 1}', 500, "attempt to access JSON non-string as string"),
        ("", 500, "failed to parse the request JSON buffer: The document is empty. at 0"),
    ],
)
def test_answers_over_http(running, body, status, error):
    answer = server.post(running.http, "/v2/logging", body)
    assert answer.status == status
    if error:
        assert clients.error_of(answer) == error
    else:
        assert json.loads(answer.body) == START and list(json.loads(answer.body)) == list(START)
    assert server.call(running.http, "DELETE", "/v2/logging").status == 405
