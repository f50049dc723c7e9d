"""shoal perf, called perf_analyzer, against a served model: the tutorial's commands, every data type, every protocol."""

import csv
import json
import os
import re
import signal
import socket
import subprocess

import pytest
from onnx import TensorProto, helper

import graphs
import models
import server
import tools

# The commands of Triton's tutorial on batching, as they are written there. Tests add where the
# server listens and short windows that need not agree: the machine they run on is not quiet.
TUTORIAL = "perf_analyzer -m text_recognition -b 2 --shape input.1:1,32,100 --concurrency-range 2:16:2 --percentile=95"
ANOTHER = "perf_analyzer -m text_recognition -b 2 --shape input.1:1,32,100 --concurrency-range 2:12:2 --percentile=9"
QUICK = ("-p", "60", "-s", "100000")  # windows so short that a busy machine makes them differ by any factor

# What the tutorial prints of its last level; figures are #.
BLOCK = """\
Request concurrency: #
  Client:
    Request count: #
    Throughput: # infer/sec
    p# latency: # usec
    p# latency: # usec
    p# latency: # usec
    p# latency: # usec
    Avg HTTP time: # usec (send/recv # usec + response wait # usec)
  Server:
    Inference count: #
    Execution count: #
    Successful request count: #
    Avg request latency: # usec (overhead # usec + queue # usec + compute input # usec + compute infer # usec + compute output # usec)
"""


def text_recognition(extra: str = "") -> models.Model:
    """A model with the tutorial's tensors; what it computes does not matter here."""
    shape = ["batch", 1, 32, 100]
    value = helper.make_tensor_value_info
    data = graphs._model(
        [helper.make_node("Abs", ["input.1"], ["308"])],
        [value("input.1", TensorProto.FLOAT, shape)],
        [value("308", TensorProto.FLOAT, shape)],
    )
    return models.Model(
        name="text_recognition",
        inputs=(models.Tensor("input.1", "FP32", (1, 32, 100)),),
        outputs=(models.Tensor("308", "FP32", (1, 32, 100)),),
        max_batch_size=8,
        versions={1: data},
        extra=extra,
    )


@pytest.fixture(scope="session")
def tool(tmp_path_factory):
    """The binary under perf_analyzer's name."""
    link = tmp_path_factory.mktemp("bin") / "perf_analyzer"
    link.symlink_to(server.BINARY)
    return link


@pytest.fixture
def perf(tool, tmp_path):
    """A function that runs perf_analyzer and returns what came of it."""

    def run(*args: object, rc: int = 0) -> subprocess.CompletedProcess:
        command = [str(tool), *(str(a) for a in args)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert done.returncode == rc, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done

    return run


def layout(text: str) -> str:
    """The words of a report without its figures and without the lines that only shoal has."""
    lines = [re.sub(r"\d+(\.\d+)?(e\+\d+)?", "#", line.rstrip()) for line in text.splitlines() if not line.strip().startswith("|")]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "extra",
    ["", "dynamic_batching { }\n", "dynamic_batching { }\n" + models.instances(2)],
    ids=["plain", "dynamic batching", "two instances"],
)
def test_the_tutorials_command_gives_the_tutorials_report(serve, perf, extra):
    target = serve(wanted=(text_recognition(extra),)).wait_ready()
    done = perf(*TUTORIAL.split()[1:], "-u", target.http, *QUICK)
    assert BLOCK in layout(done.stdout)
    *_, heading, last = layout(done.stdout).strip().rpartition("Inferences/Second vs. Client p# Batch Latency")
    assert heading and "Inferences/Second vs. Client p95 Batch Latency" in done.stdout
    levels = re.findall(r"^Concurrency: (\d+), throughput: [\d.e+]+ infer/sec, latency \d+ usec", done.stdout, re.M)
    assert levels == ["2", "4", "6", "8", "10", "12", "14", "16"]
    # Rows are counted, two to a request, and the server's account of them is the client's.
    for block in done.stdout.split("Request concurrency: ")[1:]:
        figure = {name: int(re.search(name + r": (\d+)", block)[1]) for name in ("Request count", "Inference count", "Successful request count")}
        # The counters are read one after the other while requests go on; these windows are short.
        slack = 16 + 0.1 * figure["Request count"]
        assert abs(figure["Inference count"] - 2 * figure["Successful request count"]) <= 2 * slack
        assert abs(figure["Request count"] - figure["Successful request count"]) <= slack


def test_a_blogs_command_with_an_odd_percentile(serve, perf):
    target = serve(wanted=(text_recognition(),)).wait_ready()
    done = perf(*ANOTHER.split()[1:], "-u", target.http, *QUICK)
    assert "Inferences/Second vs. Client p9 Batch Latency" in done.stdout
    assert len(re.findall(r"^    p9 latency: \d+ usec", done.stdout, re.M)) == 6


NAMES = [m.name for m in models.good() if m.name.startswith(("add_sub", "identity", "concat", "optional", "reshaped"))]


@pytest.mark.parametrize("flags", ["-i http", "-i http --input-tensor-format json --output-tensor-format json", "-i grpc"])
def test_random_inputs_of_every_type_are_taken(target, perf, flags):
    address = target.grpc if "grpc" in flags else target.http
    for name in NAMES:
        if "json" in flags and name.endswith(("fp16", "bf16")):
            continue  # the protocol has no JSON for them
        shapes = ["INPUT0:3,5", "INPUT1:3"] if name.startswith("identity") else ["INPUT0:3", "INPUT1:3"]
        if name == "identity_bytes_batched":
            shapes = ["INPUT0:3"]
        given = [f for s in shapes for f in ("--shape", s)]
        done = perf("-m", name, "-u", address, *flags.split(), "--request-count", 4, *given)
        assert "Request count: 4\n" in done.stdout, f"{name}: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("flags", ["-i http", "-i grpc", "-i grpc -a", "-i grpc --streaming", "-i grpc --grpc-compression-algorithm gzip"])
def test_files_hold_what_was_measured(target, perf, tmp_path, flags):
    address = target.grpc if "grpc" in flags else target.http
    perf("-m", "simple", "-u", address, *flags.split(), "--concurrency-range", "1:3", *QUICK, "-f", "out.csv", "--verbose-csv", "--json", "out.json")
    rows = list(csv.DictReader(open(tmp_path / "out.csv")))
    assert sorted(r["Concurrency"] for r in rows) == ["1", "2", "3"]
    assert [float(r["Inferences/Second"]) for r in rows] == sorted(float(r["Inferences/Second"]) for r in rows)
    result = json.load(open(tmp_path / "out.json"))
    assert [level["load"]["value"] for level in result["levels"]] == [1, 2, 3]
    for level in result["levels"]:
        merged = level["merged"]
        assert merged["requests"] == merged["latency"]["count"] == sum(n for _, n in merged["latency"]["buckets_ns"])
        assert merged["server"]["success"]["count"] > 0 and merged["server_cpu_ns"] > 0


@pytest.mark.parametrize("flags", ["-i http", "-i http --output-tensor-format json", "-i grpc", "-i grpc --streaming"])
def test_the_export_has_every_request_with_its_answer(target, perf, tmp_path, flags):
    address = target.grpc if "grpc" in flags else target.http
    data = {"data": [{"INPUT0": list(range(n, n + 16)), "INPUT1": [1] * 16} for n in (0, 100)]}
    (tmp_path / "data.json").write_text(json.dumps(data))
    done = perf("-m", "simple", "-u", address, *flags.split(), "--request-count", 6, "--input-data", "data.json", "--profile-export-file", "out.json")
    assert done.stdout.startswith(" Successfully read data for 1 stream/streams with 2 step/steps.\n")
    export = json.load(open(tmp_path / "out.json"))
    assert set(export) == {"experiments", "version", "service_kind", "endpoint"}
    (experiment,) = export["experiments"]
    assert experiment["experiment"] == {"mode": "concurrency", "value": 1} and len(experiment["requests"]) == 6
    start, end = experiment["window_boundaries"]
    for request in experiment["requests"]:
        sums = [a + b for a, b in zip(request["request_inputs"]["INPUT0"], request["request_inputs"]["INPUT1"])]
        assert request["response_outputs"][0]["OUTPUT0"] == sums
        assert start <= request["timestamp"] < request["response_timestamps"][0] <= end
    assert {r["request_inputs"]["INPUT0"][0] for r in experiment["requests"]} == {0, 100}


def test_an_open_loop_keeps_its_rate_and_says_where_latency_begins(target, perf):
    done = perf("-m", "simple", "-u", target.http, "--request-rate-range", 200, "--request-distribution", "poisson", "--request-count", 100)
    assert "Request Rate: 200 inference requests per seconds" in done.stdout and "Using poisson distribution" in done.stdout
    assert "latency counts from when a request was due" in done.stdout and "send lag: p50" in done.stdout
    rate = float(re.search(r"Throughput: ([\d.]+)", done.stdout)[1])
    assert 120 < rate < 300, done.stdout  # a hundred gaps of chance, on a machine that is not quiet


def test_grpc_over_tls(serve, perf, tmp_path):
    key, cert = tools.certificate(tmp_path)
    target = serve("--grpc-use-ssl=true", f"--grpc-server-cert={cert}", f"--grpc-server-key={key}", wanted=(models.simple(),)).wait_ready()
    address = "localhost:" + target.grpc.rsplit(":", 1)[1]
    trusted = ("--ssl-grpc-use-ssl", "--ssl-grpc-root-certifications-file", cert)
    done = perf("-m", "simple", "-u", address, "-i", "grpc", *trusted, "--request-count", 5)
    assert "Request count: 5\n" in done.stdout
    done = perf("-m", "simple", "-u", address, "-i", "grpc", "--ssl-grpc-use-ssl", "--request-count", 5, rc=99)
    assert "certificate" in done.stderr


def test_faults_are_told_in_the_servers_words(target, perf):
    done = perf("-m", "nosuch", "-u", target.http, rc=99)
    assert done.stderr == "error: failed to get model metadata: Request for unknown model: 'nosuch' is not found\n\n"
    done = perf("-m", "simple", "-u", target.grpc, "-i", "grpc", "-b", 99, rc=99)
    assert "batch-size must be <= 8" in done.stderr
    done = perf("-m", "identity_fp32", "-u", target.http, rc=99)
    assert "--shape INPUT0:1,1" in done.stderr


def test_an_interrupted_run_reports_what_it_has(tool, target):
    command = [str(tool), "-m", "simple", "-u", target.http, "--concurrency-range", "1:100", "-p", "200", "-s", "900"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("Request concurrency: 2"):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130 and "interrupted" in err
    assert re.search(r"^Concurrency: 1, throughput: ", out, re.M), out + err


def test_ctrl_c_before_the_server_answers(tool):
    """Somebody listens and says nothing."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        command = [str(tool), "-m", "simple", "-u", "127.0.0.1:%d" % silent.getsockname()[1]]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
        connection, _ = silent.accept()
        with connection:
            connection.recv(1)  # the question has come
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
    assert process.returncode == 130 and err == "The run was interrupted before anything was measured.\n", out + err


def test_a_server_that_dies_in_the_first_window_ends_the_run_with_counts(tool, serve):
    target = serve(wanted=(models.simple(),)).wait_ready()
    command = [str(tool), "-m", "simple", "-u", target.http, "--concurrency-range", "4", "-p", "20000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))

    def answered() -> int:
        return json.loads(server.get(target.http, "/v2/models/simple/stats").body)["model_stats"][0]["inference_count"]

    server.wait_until(lambda: answered() > 100, 20, "requests that were answered")
    target.process.kill()
    out, err = process.communicate(timeout=30)
    assert process.returncode == 99 and err.startswith("error: "), out + err
    assert re.search(r"Request count: [1-9]\d+$", out, re.M), out + err
    assert re.search(r"^Concurrency: 4, throughput: .* \(unstable: cut short\)$", out, re.M), out + err


def test_a_server_that_dies_ends_the_run_with_counts(tool, serve):
    target = serve(wanted=(models.simple(),)).wait_ready()
    command = [str(tool), "-m", "simple", "-u", target.http, "--concurrency-range", "4", "-p", "500", "-s", "0.01", "-v"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    for line in process.stdout:
        if line.startswith("  Pass [1]"):
            break
    target.process.kill()
    out, err = process.communicate(timeout=30)
    assert process.returncode == 99, out + err
    assert re.search(r"error: .*(stopped answering after \d+ requests|failed to get statistics|requests of a window failed)", err), err
    assert re.search(r"Request count: [1-9]", out), out + err
