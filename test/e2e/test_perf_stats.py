"""What perf makes of its figures: goals, comparison, capacity, and traces of arrivals."""

import json
import re
import signal
import subprocess

import models
import pipelines
import pymodels
import pytest
import server
from test_perf import perf, tool  # noqa: F401  (fixtures)

VARIED = """
name: "varied"
backend: "identity"
max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
"""


def varied(folder):
    """A repository with a model that takes any length."""
    (folder / "varied" / "1").mkdir(parents=True)
    (folder / "varied" / "config.pbtxt").write_text(VARIED)
    return folder


def lines(path):
    """The objects of a trace behind its first line."""
    first, *rest = [json.loads(line) for line in open(path)]
    assert first["format"] == "shoal-arrivals" and first["version"] == 1
    return rest


def write_trace(path, entries):
    head = {"format": "shoal-arrivals", "version": 1}
    path.write_text("".join(json.dumps(e) + "\n" for e in [head, *entries]))


def entry(at_ms, rows, length):
    return {"at_ns": int(at_ms * 1e6), "model": "varied", "inputs": [{"name": "INPUT0", "shape": [rows, length], "bytes": 4 * rows * length}]}


def test_a_replayed_trace_is_recorded_as_it_was(serve, perf, tmp_path):  # noqa: F811
    record = tmp_path / "server.jsonl"
    target = serve("--model-repository", varied(tmp_path / "repository"), "--record-arrivals", record).wait_ready()
    sent = [entry(n * n / 4, n % 3 + 1, 10 + n % 4) for n in range(40)]
    write_trace(tmp_path / "trace.jsonl", sent)
    done = perf("-m", "varied", "-u", target.http, "--replay", "trace.jsonl", "--replay-speed", 2)
    assert "Replaying 40 arrivals of trace.jsonl at 2x" in done.stdout and "Request count: 40\n" in done.stdout
    assert "latency counts from when a request was due" in done.stdout
    target.signal()
    assert target.wait() == 0
    got = lines(record)
    shapes = lambda trace: sorted((e["inputs"][0]["shape"], e["inputs"][0]["bytes"]) for e in trace)  # noqa: E731
    assert shapes(got) == shapes(sent) and {e["model"] for e in got} == {"varied"}
    times = sorted(e["at_ns"] for e in got)
    assert times[-1] - times[0] > 0.9 * sent[-1]["at_ns"] / 2


def test_what_arrives_is_recorded_while_it_comes(serve, tool, perf, tmp_path):  # noqa: F811
    target = serve("--model-repository", varied(tmp_path / "repository")).wait_ready()
    command = [str(tool), "--record", "live.jsonl", "--record-from", "http://" + target.metrics]
    listener = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert "Recording what arrives" in listener.stderr.readline()
    perf("-m", "varied", "-u", target.http, "--shape", "INPUT0:7", "--request-count", 25)
    live = tmp_path / "live.jsonl"
    server.wait_until(lambda: live.read_text().count("\n") == 26, 20, "25 arrivals in the trace")
    listener.send_signal(signal.SIGINT)
    out, err = listener.communicate(timeout=20)
    assert listener.returncode == 0 and "recorded 25 arrivals in live.jsonl" in out, out + err
    assert all(e["inputs"][0]["shape"] == [1, 7] for e in lines(live))
    target.signal()
    assert target.wait() == 0


def test_a_trace_that_does_not_fit_ends_at_once(serve, perf, tmp_path):  # noqa: F811
    target = serve("--model-repository", varied(tmp_path / "repository")).wait_ready()
    write_trace(tmp_path / "trace.jsonl", [entry(0, 9, 3)])
    done = perf("-m", "varied", "-u", target.http, "--replay", "trace.jsonl", rc=99)
    assert "the model takes 1 to 8 rows" in done.stderr


def started(command, folder):
    """A run that has been sending for a second."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
    for line in process.stdout:
        if line.startswith("Request Rate"):
            break
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    return process


def test_a_replay_that_is_interrupted_reports_what_it_has(serve, tool, tmp_path):  # noqa: F811
    target = serve("--model-repository", varied(tmp_path / "repository")).wait_ready()
    write_trace(tmp_path / "trace.jsonl", [entry(n * 10, 1, 3) for n in range(6000)])
    command = [str(tool), "-m", "varied", "-u", target.http, "--replay", "trace.jsonl", "--json", "out.json"]
    process = started(command, tmp_path)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130 and "interrupted" in err, out + err
    assert re.search(r"Request count: [1-9]", out), out + err
    assert json.load(open(tmp_path / "out.json"))["levels"][0]["merged"]["requests"] < 6000


def test_a_server_that_dies_ends_a_replay_with_counts(serve, tool, tmp_path):  # noqa: F811
    target = serve("--model-repository", varied(tmp_path / "repository")).wait_ready()
    write_trace(tmp_path / "trace.jsonl", [entry(n * 5, 1, 3) for n in range(12000)])
    command = [str(tool), "-m", "varied", "-u", target.http, "--replay", "trace.jsonl"]
    process = started(command, tmp_path)
    target.process.kill()
    out, err = process.communicate(timeout=30)
    assert process.returncode == 99, out + err
    assert re.search(r"error: .*(stopped answering after [1-9]\d* requests|failed to get statistics|more than the)", err), err


def test_goals_comparison_and_spectrum(serve, perf, tmp_path):  # noqa: F811
    target = serve(wanted=(models.simple(),)).wait_ready()
    run = ("-m", "simple", "-u", target.http, "-p", 400, "-s", 900)
    done = perf(*run, "--json", "a.json", "--slo", "p99<10s,error<0.1%,throughput>1", "--hdr-file", "a.hgrm", "-v")
    assert re.search(r"^    \| SLO p99<10s: pass \(", done.stdout, re.M)
    assert re.search(r"^    \| 95% interval: throughput [\d.]+ to [\d.]+ infer/sec, mean \d+ to \d+ usec, p50 ", done.stdout, re.M), done.stdout
    spectrum = (tmp_path / "a.hgrm").read_text()
    assert spectrum.startswith("       Value     Percentile TotalCount 1/(1-Percentile)\n") and "#[Max     =" in spectrum
    figures = {f["name"]: f for f in json.load(open(tmp_path / "a.json"))["levels"][0]["figures"]}
    assert set(figures) == {"throughput", "mean", "p50", "p90", "p95", "p99"}
    assert figures["throughput"]["low"] < figures["throughput"]["value"] < figures["throughput"]["high"]
    done = perf(*run, "--json", "b.json", "--slo", "p99<1ns", "--compare", "a.json", rc=4)
    assert "| SLO p99<1ns: FAIL (" in done.stdout and "not every goal" in done.stderr
    assert re.search(r"^\| verdict: (faster|slower|no difference seen) \(", done.stdout, re.M), done.stdout
    done = subprocess.run([str(server.BINARY), "perf", "diff", "a.json", "b.json", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and json.loads(done.stdout)["verdict"] in ("faster", "slower", "no difference seen"), done.stderr


def test_a_range_that_is_not_stable_exits_2_unless_it_may(target, perf):  # noqa: F811
    run = ("-m", "simple", "-u", target.http, "--concurrency-range", "1:2", "-p", 60, "-r", 2)
    done = perf(*run, rc=2)
    assert len(re.findall(r"^Concurrency: \d, .*\(unstable: 2 of 3 windows\)$", done.stdout, re.M)) == 2, done.stdout
    perf(*run, "--allow-unstable")


def test_capacity_is_found_and_can_be_interrupted(target, tool):  # noqa: F811
    # A low ceiling keeps it short: whatever is asked for up to it, this server does.
    command = [str(tool), "-m", "simple", "-u", target.http, "--find-capacity", "p99<2s", "--request-rate-range", "20:40"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("| probe: 20 requests/s meets the goal"):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    # On a busy machine the next probe may be over before the signal arrives.
    assert process.returncode == 130 and re.search(r"capacity: not found; the highest probe that met p99<2s had (20|40) requests/s", out), out + err


def test_the_models_of_an_ensemble_and_of_a_bls_model_are_told_apart(serve, perf, tmp_path):  # noqa: F811
    repository = pipelines.write(tmp_path / "repository")
    flags = [pymodels.PYTHON, "--model-control-mode=explicit", "--load-model=outer", "--load-model=gather"]
    target = serve("--model-repository", repository, *flags).wait_ready()
    common = ["-u", target.http, "--request-count", 60]
    done = perf("-m", "outer", *common, "-f", "out.csv")
    parts = done.stdout.split("Composing models: ")[1]
    for model in ("chain", "double", "echo", "triple"):
        assert re.search(rf"\n    {model}, version: 1\n      Inference count: [1-9]", parts), done.stdout
    assert re.search(r"Avg request latency: \d+ usec \(overhead \d+ usec \+ queue \d+ usec \+ compute \d+ usec\)", done.stdout), done.stdout
    assert len((tmp_path / "echo_v1.out.csv").read_text().splitlines()) == 2

    done = perf("-m", "gather", *common, "--bls-composing-models", "double:1,triple")
    found = dict(re.findall(r"\n    (\w+), version: 1\n      Inference count: (\d+)", done.stdout))
    assert int(found["double"]) >= 4 * 60 and int(found["triple"]) >= 4 * 60, done.stdout
    done = perf("-m", "gather", *common, "--bls-composing-models", "nobody", rc=99)
    assert "'nobody'" in done.stderr, done.stderr
