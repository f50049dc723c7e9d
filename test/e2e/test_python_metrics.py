"""Metrics of models' own, from MetricFamily to /metrics."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.http

import clients
import pymodels
from server import get, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = pymodels.copy(tmp_path_factory.mktemp("counts"), "counts")
    config = (repository / "counts" / "config.pbtxt")
    config.write_text(config.read_text().replace("KIND_CPU }", "KIND_CPU count: 2 }"))
    with pymodels.serve(repository) as server:
        yield server.wait_ready()


def ask(server, act: str) -> str:
    with tritonclient.http.InferenceServerClient(server.http) as client:
        act_ = clients.tensor(tritonclient.http, "ACT", "BYTES", np.array([act.encode()], np.object_))
        return client.infer("counts", [act_]).as_numpy("SAID")[0].decode()


def shown(server) -> str:
    return get(server.metrics, "/metrics").text


def test_metrics_are_there_from_the_start_and_count_over_instances(server):
    label = 'e2e_seen{kind="a \\"quoted\\" one",model="counts"}'
    assert f"# HELP e2e_seen How many were seen\n# TYPE e2e_seen counter\n{label} 0\n" in shown(server)
    for _ in range(20):
        assert ask(server, "self.counter.increment(2)") == "None"
    assert ask(server, "self.counter.value()") == "40.0"
    assert f"{label} 40\n" in shown(server)


def test_gauges_go_up_and_down(server):
    ask(server, "self.gauge.set(2.5)")
    assert ask(server, "self.gauge.value()") == "2.5"
    ask(server, "self.gauge.increment(-1)")
    assert ask(server, "self.gauge.value()") == "1.5"
    assert '# HELP e2e_level A "level"\n# TYPE e2e_level gauge\ne2e_level 1.5\n' in shown(server)


def test_histograms_have_buckets(server):
    for value in (0.5, 0.7, 100):
        ask(server, f"self.histogram.observe({value})")
    want = "".join(f'e2e_size_bucket{{part="x",le="{le}"}} {n}\n' for le, n in (("0.5", 1), ("1", 2), ("10", 2), ("+Inf", 3)))
    want += 'e2e_size_sum{part="x"} 101.2\ne2e_size_count{part="x"} 3\n'
    assert want in shown(server)


def test_a_family_that_is_dropped_takes_its_metrics_along_and_begins_anew(server):
    local = "pb_utils.MetricFamily('e2e_local', 'For a while', pb_utils.MetricFamily.COUNTER)"
    for _ in range(2):
        assert ask(server, f"(lambda f: (f.Metric().value(), f.Metric().increment(3), f.Metric().value()))({local})") == "(0.0, None, 3.0)"
        wait_until(lambda: "e2e_local" not in shown(server), 10, "the metrics of a family that is gone are gone")


@pytest.mark.parametrize("act, want", [
    ("self.counter.increment(-1)", "TritonModelException: Failed to increment metric value: TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values."),
    ("self.counter.set(3)", "TritonModelException: Failed to set metric value: TRITONSERVER_METRIC_KIND_COUNTER does not support Set"),
    ("self.gauge.observe(1)", "TritonModelException: Failed to observe metric value: TRITONSERVER_METRIC_KIND_GAUGE does not support Observe"),
    ("self.histogram.value()", "TritonModelException: Failed to get metric value: TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value"),
    ("self.gauge.set(float('nan'))", "TritonModelException: Failed to set metric value: the value is nan, want a number"),
    ("pb_utils.MetricFamily('e2e_seen', '', pb_utils.MetricFamily.GAUGE)", "TritonModelException: Error when creating MetricFamily: metric family 'e2e_seen' is a counter already and cannot be a gauge too"),
    ("pb_utils.MetricFamily('bad name', '', pb_utils.MetricFamily.GAUGE)", 'TritonModelException: Error when creating MetricFamily: "bad name" is not a metric\'s name; use letters, digits, _ and :, and no digit first'),
    ("self.histograms.Metric(buckets=[3, 1])", "TritonModelException: Error when creating Metric: histogram 'e2e_size': the buckets [3 1] do not ascend"),
    ("self.histograms.Metric()", "TritonModelException: Failed to create metric. Missing required buckets."),
    ("pb_utils.MetricFamily('e2e_gone', '', pb_utils.MetricFamily.GAUGE).Metric().set(1)", "TritonModelException: Failed to set metric value: Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should be deleted AFTER its corresponding 'Metric' objects have been deleted."),
    ("self.counters.Metric(labels=[1])", "TritonModelException: Failed to create metric. Labels must be a dictionary."),
])  # fmt: skip
def test_what_a_metric_does_not_take_is_refused(server, act, want):
    assert ask(server, act) == want


@pytest.mark.parametrize("act", [
    "pb_utils.Logger.log('x', None)",
    "pb_utils.Logger.log('x', 1)",
    "pb_utils.Logger.log_info(None)",
    "pb_utils.Tensor('', None)",
    "pb_utils.InferenceRequest(inputs=None)",
    "pb_utils.InferenceRequest(request_id=None)",
    "pb_utils.InferenceRequest(correlation_id=None)",
    "pb_utils.InferenceRequest(model_name=None)",
    "pb_utils.InferenceRequest(model_version=None)",
    "pb_utils.InferenceRequest(flags=None)",
    "pb_utils.InferenceRequest(requested_output_names=[None])",
])  # fmt: skip
def test_an_argument_of_a_wrong_type_is_a_type_error(server, act):
    assert ask(server, act).startswith("TypeError: ")
