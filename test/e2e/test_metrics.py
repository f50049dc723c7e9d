"""The metrics port."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tritonclient.http as library

import clients
import server

LABELS = 'model="versions_specific",version="1"'


def value(target, name: str, labels: str = LABELS) -> float:
    text = server.get(target.metrics, "/metrics").text
    found = re.search(rf"^{name}\{{{re.escape(labels)}\}} (\S+)$", text, re.MULTILINE)
    assert found, f"no {name}{{{labels}}} in\n{text}"
    return float(found.group(1))


@pytest.mark.peer
def test_counters_follow_the_requests(target, http_client):
    names = ["nv_inference_request_success", "nv_inference_count", "nv_inference_exec_count"]
    before = [value(target, n) for n in names]
    inputs = [clients.tensor(library, "INPUT0", "FP32", np.ones((2, 4), np.float32))]
    http_client.infer("versions_specific", inputs)
    assert [value(target, n) - b for n, b in zip(names, before)] == [1, 2, 1]


@pytest.mark.peer
@pytest.mark.parametrize("reason", ["REJECTED", "CANCELED", "BACKEND", "OTHER"])
def test_every_failure_reason_is_there_from_the_start(target, reason):
    labels = f'model="versions_specific",reason="{reason}",version="1"'
    assert value(target, "nv_inference_request_failure", labels) == 0


@pytest.mark.peer
@pytest.mark.parametrize("name", [
    "nv_inference_request_duration_us", "nv_inference_queue_duration_us", "nv_inference_compute_input_duration_us",
    "nv_inference_compute_infer_duration_us", "nv_inference_compute_output_duration_us",
    "nv_inference_pending_request_count",
])  # fmt: skip
def test_every_family_has_help_type_and_plain_numbers(target, name):
    text = server.get(target.metrics, "/metrics").text
    kind = "gauge" if "pending" in name else "counter"
    assert re.search(rf"^# HELP {name} \S", text, re.MULTILINE)
    assert f"# TYPE {name} {kind}\n" in text
    assert re.search(rf"^{name}\{{{LABELS}\}} \d+$", text, re.MULTILINE)


@pytest.mark.peer
def test_the_answer_is_prometheus_text(target):
    answer = server.get(target.metrics, "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    for line in answer.text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) .*|[a-zA-Z_:][\w:]*(\{.*\})? \S+", line), line


@pytest.mark.peer
def test_other_methods_and_the_http_port_have_no_metrics(target):
    assert server.post(target.metrics, "/metrics").status == 405
    assert server.get(target.http, "/metrics").status == 404


def test_other_paths_are_not_found(target):
    assert server.get(target.metrics, "/foo").status == 404
