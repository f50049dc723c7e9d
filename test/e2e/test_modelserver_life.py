"""Multi Model Server and TorchServe: what recorded answers cannot show. Batches, deaths, keys, streams, snapshots, attacks."""

from __future__ import annotations

import concurrent.futures
import http.client
import io
import json
import os
import pathlib
import signal
import subprocess
import zipfile

import grpc
import pytest

import archives
from server import LOOPBACK, PORTS, Server, environment, wait_until


def ask(address: str, method: str, path: str, body: bytes | None = None, headers=None) -> tuple[int, bytes, dict[str, str]]:
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
    finally:
        connection.close()


def many(address: str, path: str, bodies: list[bytes]) -> list[tuple[int, bytes]]:
    """Sends the requests at once."""
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        return [r[:2] for r in pool.map(lambda b: ask(address, "POST", path, b), bodies)]


@pytest.fixture(scope="module")
def mms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mms")
    store = archives.write(folder, "mms")
    with archives.server(folder, "mms", "--model-store", store) as server:
        server.wait_for_log("Model server started.")
        server.store = store
        yield server


def register(server: Server, query: str) -> None:
    status, body, _ = ask(server.address("management"), "POST", f"/models?{query}")
    assert status == 200, body


def test_requests_share_batches(mms):
    register(mms, "url=mix.mar&model_name=shared&batch_size=8&max_batch_delay=2000&initial_workers=1")
    answers = many(mms.address("inference"), "/predictions/shared", [b"x"] * 8)
    assert {a for a in answers} == {(200, b"fine, batch=8")}


def test_a_fault_of_the_handler_is_told_to_the_whole_batch_and_the_worker_stays(mms):
    register(mms, "url=mix.mar&model_name=faulty&batch_size=4&max_batch_delay=2000&initial_workers=1")
    before = json.loads(ask(mms.address("management"), "GET", "/models/faulty")[1])
    answers = many(mms.address("inference"), "/predictions/faulty", [b"a", b"bad", b"c", b"d"])
    assert [s for s, _ in answers] == [503] * 4 and b"Prediction failed" in answers[0][1]
    assert ask(mms.address("inference"), "POST", "/predictions/faulty", b"x")[1] == b"fine, batch=1"
    after = json.loads(ask(mms.address("management"), "GET", "/models/faulty")[1])
    assert before["workers"][0]["id"] == after["workers"][0]["id"]


def test_statuses_differ_within_a_batch(mms):
    register(mms, "url=ctx.mar&model_name=statuses&batch_size=4&max_batch_delay=2000&initial_workers=1")
    answers = many(mms.address("inference"), "/predictions/statuses", [b"x", b"status", b"status201", b"status404"])
    assert [s for s, _ in answers] == [200, 418, 201, 404]
    assert json.loads(answers[0][1])["batch"] == 4


def test_a_killed_worker_loses_only_its_batch(mms):
    register(mms, "url=exc.mar&model_name=killed&initial_workers=1")
    assert ask(mms.address("inference"), "POST", "/predictions/killed", b"kill")[:1] == (500,)
    answers = many(mms.address("inference"), "/predictions/killed", [b"ok"] * 8)
    assert answers == [(200, b"ok")] * 8


def test_a_full_queue_takes_what_the_original_takes(mms):
    """One in the worker and 100 in the queue; more only where a client is so slow to connect that the queue has moved on."""
    register(mms, "url=slp.mar&model_name=full&initial_workers=1")
    answers = many(mms.address("inference"), "/predictions/full", [b"2"] + [b"0.001"] * 129)
    taken = [s for s, _ in answers].count(200)
    assert {s for s, _ in answers} <= {200, 503} and taken >= 101, answers


def test_bad_json_reaches_the_handler_as_bytes(mms):
    register(mms, "url=ctx.mar&model_name=json&initial_workers=1")
    status, body, _ = ask(mms.address("inference"), "POST", "/predictions/json", b"{bad", {"Content-Type": "application/json"})
    assert status == 200 and json.loads(body)["types"] == {"body": "bytearray"}


def test_scaling_down_and_unregistering_finish_what_runs(mms):
    register(mms, "url=slp.mar&model_name=busy&initial_workers=2")
    inference, management = mms.address("inference"), mms.address("management")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        running = [pool.submit(ask, inference, "POST", "/predictions/busy", b"0.7") for _ in range(2)]
        wait_until(lambda: not any(f.done() for f in running), 5, "requests in flight")
        assert ask(management, "PUT", "/models/busy?min_worker=1&max_worker=1&synchronous=true")[0] == 200
        assert [f.result()[0] for f in running] == [200, 200]
        last = pool.submit(ask, inference, "POST", "/predictions/busy", b"0.5")
        describe = lambda: json.loads(ask(management, "GET", "/models/busy")[1])  # noqa: E731
        assert len(describe()["workers"]) == 1
        last.result()
        assert ask(management, "DELETE", "/models/busy")[0] == 200
    assert ask(inference, "POST", "/predictions/busy", b"0")[0] == 404


def test_hostile_archives_and_urls_are_refused(mms):
    def make(name: str, entries: dict[str, bytes], link: bool = False) -> None:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as z:
            for entry, content in entries.items():
                info = zipfile.ZipInfo(entry)
                if link:
                    info.external_attr = 0o120777 << 16
                z.writestr(info, content, zipfile.ZIP_DEFLATED)
        (mms.store / name).write_bytes(packed.getvalue())

    make("slip.mar", {"../../../slipped.txt": b"x"})
    make("link.mar", {"etc": b"/etc"}, link=True)
    make("bomb.mar", {"zeros": bytes(80 << 20)})
    make("manifest.mar", {"MAR-INF/MANIFEST.json": b'{"x":"' + b"x" * (2 << 20) + b'"}'})
    management = mms.address("management")
    for url in ("slip.mar", "link.mar", "bomb.mar", "manifest.mar"):
        status, body, _ = ask(management, "POST", f"/models?url={url}&model_name=hostile&handler=h")
        assert status == 400, f"{url}: {status} {body!r}"
    assert not list(pathlib.Path(os.environ.get("TMPDIR", "/tmp")).glob("slipped.txt"))
    for url in ("../store/ok.mar", "%2e%2e%2fok.mar", "/etc/passwd", "file:///etc/passwd", "http://169.254.169.254/x.mar", "http://192.0.2.1/x.mar"):
        status, body, _ = ask(management, "POST", f"/models?url={url}&model_name=hostile")
        assert status in (400, 404), f"{url}: {status} {body!r}"
    assert ask(management, "GET", "/models/hostile")[0] == 404
    status, body, _ = ask(mms.address("inference"), "POST", "/predictions/ok", bytes(6553501))
    assert (status, body) == (413, b"")


def test_the_archive_commands(mms, tmp_path):
    def run(*args: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(a) for a in args], capture_output=True, text=True, env=environment())

    shoal = archives.link(tmp_path, "shoal")
    good = mms.store / "ok.mar"
    assert run(shoal, "archive", "verify", good).returncode == 0
    assert json.loads(run(shoal, "archive", "inspect", good).stdout)["model"]["modelName"] == "ok"
    made = run(shoal, "archive", "create", "--model-name", "a", "--model-path", tmp_path, "--handler", "h", "--export-path", tmp_path)
    assert made.returncode == 0 and (tmp_path / "a.mar").exists(), made.stderr
    again = run(archives.link(tmp_path, "model-archiver"), "--model-name", "a", "--model-path", tmp_path, "--handler", "h", "--export-path", tmp_path)
    assert again.returncode == 1 and "already exists" in again.stderr
    (tmp_path / "no.mar").write_bytes(b"no archive")
    assert run(shoal, "archive", "verify", tmp_path / "no.mar").returncode == 1


def test_start_and_stop_in_the_background(tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    (tmp_path / "config.properties").write_text("inference_address=unix:%s/i.sock\nmanagement_address=unix:%s/m.sock\n" % (tmp_path, tmp_path))
    binary = archives.link(tmp_path, "mxnet-model-server")
    env = {**environment(), "TMPDIR": str(tmp_path)}
    with open(tmp_path / "out", "w") as out:

        def run(*args: str) -> int:
            return subprocess.run([str(binary), *args], cwd=tmp_path, env=env, stdout=out, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL).returncode

        assert run("--start", "--model-store", "store") == 0
        pid = int((tmp_path / ".model_server.pid").read_text())
        try:
            wait_until(lambda: "Model server started." in (tmp_path / "out").read_text(), 20, "the server's start")
            assert run("--start", "--model-store", "store") == 1
            assert run("--stop") == 0
        finally:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        assert run("--stop") == 0
        assert run("--start", "--model-store", str(tmp_path / "none")) == 1
    lines = [line for line in (tmp_path / "out").read_text().splitlines() if not line.startswith("Warning")]
    assert lines[:4] == [
        "Model server started.",
        "Model server is already running, please use multi-model-server --stop to stop MMS.",
        "Model server stopped.",
        "Model server is not currently running.",
    ]
    assert lines[4].startswith("--model-store directory not found: ")


def test_both_dialects_serve_one_model(tmp_path):
    store = archives.write(tmp_path, "mms")
    config = tmp_path / "config.properties"
    config.write_text(archives.MMS_CONFIG + f"model_store={store}\nload_models=ctx.mar\ndefault_workers_per_model=1\n")
    with Server("--model-server=mms", "--model-server-config", config, *PORTS, *LOOPBACK) as server:
        server.wait_for_log("Model server started.")
        assert ask(server.address("inference"), "POST", "/predictions/ctx", b"status201")[:2] == (201, b"created")
        asked = {"inputs": [{"name": "data", "shape": [1, 1], "datatype": "BYTES", "data": ["status201"]}]}
        status, body, _ = ask(server.http, "POST", "/v2/models/ctx/infer", json.dumps(asked).encode())
        assert status == 200 and json.loads(body)["outputs"][0]["data"] == ["created"], body
        status, body, _ = ask(server.http, "POST", "/v2/models/ctx/infer", json.dumps(asked).replace("status201", "status404").encode())
        assert status == 404, body


STREAM = """
from ts.handler_utils.utils import send_intermediate_predict_response


def handle(data, context):
    if data is None:
        return None
    for i in range(3):
        send_intermediate_predict_response(["part%d " % i] * len(data), context.request_ids, "ok", 200, context)
    return ["end"] * len(data)
"""


def test_torchserve_keys_streams_snapshots_and_envelopes(tmp_path):
    store = archives.write(tmp_path, "torchserve")
    (tmp_path / "stream.py").write_text(STREAM)
    archives.pack(tmp_path, "torchserve", "stream", tmp_path / "stream.py", store, "1.0")
    with archives.server(tmp_path, "torchserve", "--model-store", store, "--enable-model-api", config="metrics_mode=prometheus\n") as server:
        server.wait_for_log("Model server started.")
        file = tmp_path / "key_file.json"
        assert file.stat().st_mode & 0o777 == 0o600
        keys = json.loads(file.read_text())
        header = lambda kind: {"Authorization": f"Bearer {keys[kind]['key']}"}  # noqa: E731
        inference, management = server.address("inference"), server.address("management")
        assert ask(inference, "GET", "/ping")[0] == 400
        assert ask(inference, "GET", "/ping", headers=header("management"))[0] == 400
        assert ask(inference, "GET", "/ping", headers=header("inference"))[0] == 200
        assert ask(management, "GET", "/token?type=inference", headers=header("API"))[:2] == (200, b"\n")
        assert ask(inference, "GET", "/ping", headers=header("inference"))[0] == 400
        keys = json.loads(file.read_text())
        assert ask(inference, "GET", "/ping", headers=header("inference"))[0] == 200
        status, body, _ = ask(management, "POST", "/models?url=stream.mar&initial_workers=1", headers=header("management"))
        assert status == 200, body
        status, body, headers = ask(inference, "POST", "/predictions/stream", b"x", header("inference"))
        assert (status, body, headers["transfer-encoding"]) == (200, b"part0 part1 part2 end", "chunked")
        text = ask(server.address("model_metrics"), "GET", "/metrics")[1].decode()
        assert 'ts_inference_requests_total{model_name="stream",model_version="default",hostname="' in text
    again = archives.server(
        tmp_path, "torchserve", "--model-store", store, "--disable-token-auth", "--models", "ctx.mar",
        config="service_envelope=kserve\n", env={"LOG_LOCATION": str(tmp_path / "logs")},
    )  # fmt: skip
    with again as server:
        server.wait_for_log("Model server started.")
        status, body, _ = ask(server.address("inference"), "POST", "/v1/models/ctx:predict", b'{"instances":[{"data":"a"}]}', {"Content-Type": "application/json"})
        assert status == 200 and json.loads(body)["predictions"][0]["values"] == {"data": "a"}, body
        assert ask(server.address("management"), "POST", "/models?url=ok.mar")[0] == 405
        read = lambda name: (tmp_path / "logs" / name).read_text()  # noqa: E731
        wait_until(lambda: '"POST /v1/models/ctx:predict HTTP/1.1" 200 ' in read("access_log.log"), 10, "the access log")
        wait_until(lambda: " - PredictionTime.ms:" in read("model_metrics.log"), 10, "the handlers' metrics")
        wait_until(lambda: " - Requests2XX.Count:1.0|#Level:Host|#hostname:" in read("ts_metrics.log"), 10, "the server's metrics")
        wait_until(lambda: " - MemoryUsed.Megabytes:" in read("ts_metrics.log"), 10, "the machine's metrics")
        wait_until(lambda: " - WorkerLoadTime.Milliseconds:" in read("ts_metrics.log"), 10, "the workers' metrics")
        assert " [INFO ] main shoal - listening protocol=inference" in read("ts_log.log")
        ask(server.address("inference"), "POST", "/v1/models/ctx:predict", b'{"instances":[{"body":"print"}]}', {"Content-Type": "application/json"})
        wait_until(lambda: "-stdout MODEL_LOG - from the handler" in read("model_log.log"), 10, "what the handler printed")


def test_torchserve_starts_again_with_what_was_registered(tmp_path):
    store = archives.write(tmp_path, "torchserve")
    sockets = "".join(f"{api}_address=unix:{tmp_path}/{api}.sock\n" for api in ("inference", "management", "metrics"))
    config = tmp_path / "first.properties"
    config.write_text(sockets + "grpc_inference_port=0\ngrpc_management_port=0\nenable_model_api=true\ndisable_token_authorization=true\ndefault_workers_per_model=1\n")

    def start(*args: object) -> Server:
        return Server("--foreground", "--model-store", store, *args, binary=archives.link(tmp_path, "torchserve"), command=(), cwd=tmp_path, env={"TMPDIR": str(tmp_path)})

    with start("--ts-config", config, "--models", "ctxv1.mar", "ok.mar") as server:
        server.wait_for_log("Model server started.")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0, server.log
    with start() as server:
        server.wait_for_log("Model server started.")
        registered = [line for line in server.log.splitlines() if "model registered" in line]
        assert len(registered) == 2, server.log


def call(address: str, service: str, method: str, request: bytes | list[bytes], stream: bool = False, metadata=()):
    """A gRPC call with an encoded message; returns what field 1 of each answer has. A list of messages is a stream, whose answers come whole."""
    with grpc.insecure_channel(address) as channel:
        if isinstance(request, list):
            return list(channel.stream_stream(f"/org.pytorch.serve.grpc.{service}/{method}")(iter(request), timeout=20, metadata=metadata))
        make = channel.unary_stream if stream else channel.unary_unary
        answer = make(f"/org.pytorch.serve.grpc.{service}/{method}")(request, timeout=20, metadata=metadata)
        return [field(m, 1) for m in answer] if stream else field(answer, 1)


def message(**fields: object) -> bytes:
    """Encodes fields f1, f2, ...: numbers, texts and, for a map, a dict."""
    out = b""
    for name, value in fields.items():
        n = int(name[1:])
        if isinstance(value, int):
            out += bytes([n << 3, value])
            continue
        for v in [message(f1=k, f2=w) for k, w in value.items()] if isinstance(value, dict) else [value]:
            raw = v.encode() if isinstance(v, str) else v
            size = [len(raw)] if len(raw) < 128 else [len(raw) & 127 | 128, len(raw) >> 7]
            out += bytes([n << 3 | 2, *size]) + raw
    return out


def field(raw: bytes, number: int) -> bytes:
    """The bytes of the first field, which must have that number."""
    assert raw[0] == number << 3 | 2, raw
    at, size, shift = 1, 0, 0
    while True:
        size |= (raw[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if not raw[at - 1] & 128:
            return raw[at : at + size]


def test_torchserve_over_grpc(tmp_path):
    store = archives.write(tmp_path, "torchserve")
    (tmp_path / "stream.py").write_text(STREAM)
    archives.pack(tmp_path, "torchserve", "stream", tmp_path / "stream.py", store, "1.0")
    inference, management = "inference.InferenceAPIsService", "management.ManagementAPIsService"
    with archives.server(tmp_path, "torchserve", "--model-store", store, "--enable-model-api", "--disable-token-auth") as server:
        server.wait_for_log("Model server started.")
        i, m = server.address("grpc_inference"), server.address("grpc_management")
        assert json.loads(call(i, inference, "Ping", b"")) == {"status": "Healthy"}
        told = call(m, management, "RegisterModel", message(f3=1, f8=1, f9="exc.mar"))
        assert told == b'Model "exc" Version: 1.0 registered with 1 initial workers'
        assert call(i, inference, "Predictions", message(f1="exc", f3={"body": "num"})) == b"3.5"
        call(m, management, "RegisterModel", message(f3=1, f8=1, f9="stream.mar"))
        assert call(i, inference, "StreamPredictions", message(f1="stream", f3={"body": "x"}), stream=True) == [b"part0 ", b"part1 ", b"part2 ", b"end"]
        # A stream of requests, each in a sequence; one that fails does not end it.
        call(m, management, "RegisterModel", message(f3=1, f8=1, f9="ctx.mar"))
        asked = [("exc", "num"), ("exc", "x"), ("nope", "x"), ("exc", "str")]
        answers = call(i, inference, "StreamPredictions2", [message(f1=name, f3={"body": body}, f4="s1") for name, body in asked])

        def fails(code: int, text: str, kind: str) -> bytes:
            info = message(f1="type.googleapis.com/google.rpc.ErrorInfo", f2=message(f1=kind))
            return message(f3=message(f1=code, f2=text, f3=info))

        errors = [
            fails(14, "Prediction failed", "org.pytorch.serve.http.InternalServerException"),
            fails(13, "Model not found: nope", "org.pytorch.serve.archive.model.ModelNotFoundException"),
        ]
        assert answers == [message(f1="3.5"), *errors, message(f1="h\u00e9llo")]
        unnamed = [message(f1="exc", f3={"body": "num"}), message(f1="ctx", f3={"ts_request_sequence_start": "true"})]
        without, started = call(i, inference, "StreamPredictions2", unnamed)
        assert without == fails(13, "Parameter sequenceId is required.", "BadRequestException.()")
        headers = json.loads(field(started, 1))["headers"]
        assert headers["ts_request_sequence_id"].startswith("ts-seq-") and headers["ts_request_sequence_start"] == "true"
        assert json.loads(call(m, management, "DescribeModel", message(f1="exc")))[0]["modelName"] == "exc"
        said = json.loads(call(m, management, "DescribeModel", message(f1="ctx", f3=1)))[0]["customizedMetadata"]
        assert said["headers"] == {"describe": "True"} and said["keys"] == []
        assert json.loads(call(m, management, "ListModels", b""))["models"][1] == {"modelName": "exc", "modelUrl": "exc.mar"}
        assert call(m, management, "ScaleWorker", message(f1="exc", f3=1, f4=1, f6=1)) == b"Workers scaled to 1 for model: exc"
        faults = [
            (i, inference, "Predictions", message(f1="nope"), "INTERNAL", "Model not found: nope\norg.pytorch.serve.archive.model.ModelNotFoundException"),
            (i, inference, "Predictions", message(f1="exc", f3={"body": "x"}), "UNAVAILABLE", "Prediction failed\norg.pytorch.serve.http.InternalServerException"),
            (i, inference, "Predictions", message(f1="exc", f3={"body": "kill"}), "RESOURCE_EXHAUSTED", "Worker died.\norg.pytorch.serve.http.InternalServerException"),
            (m, management, "DescribeModel", message(f1="exc", f3=1), "UNAVAILABLE", "Prediction failed\norg.pytorch.serve.http.InternalServerException"),
            (m, management, "UnregisterModel", b"", "INVALID_ARGUMENT", "Parameter url is required.\norg.pytorch.serve.http.BadRequestException"),
            (i, inference, "Predictions", b"", "INTERNAL", "Parameter model_name is required.\nBadRequestException.()"),
            (m, management, "RegisterModel", message(f9="nope.mar"), "NOT_FOUND", "Model not found at: nope.mar\norg.pytorch.serve.archive.model.ModelNotFoundException"),
            (m, management, "RegisterModel", b"", "INVALID_ARGUMENT", "Parameter url is required.\norg.pytorch.serve.http.BadRequestException"),
            (m, management, "RegisterModel", message(f9="exc.mar"), "UNKNOWN", ""),
            (m, management, "ScaleWorker", message(f1="exc", f3=1, f4=2), "INVALID_ARGUMENT", "max_worker cannot be less than min_worker.\norg.pytorch.serve.http.BadRequestException"),
        ]  # fmt: skip
        for *asked, code, text in faults:
            with pytest.raises(grpc.RpcError) as failed:
                call(*asked)
            assert (failed.value.code().name, failed.value.details()) == (code, text)
        assert call(m, management, "UnregisterModel", message(f1="exc")) == b'Model "exc" unregistered'


def test_torchserve_settings_of_single_models(tmp_path):
    """models of config.properties, an archive's own time limit and requirements, and a load without memory."""
    store = archives.write(tmp_path, "torchserve")

    def pack(name: str, code: str, *more: object) -> None:
        (tmp_path / f"{name}.py").write_text(code)
        command = [archives.link(tmp_path, "torch-model-archiver"), "--version", "1.0", "--model-name", name, "--handler", tmp_path / f"{name}.py"]
        subprocess.run([*map(str, command), "--export-path", str(store), *map(str, more)], check=True, capture_output=True)

    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as z:
        z.writestr("tiny.py", "WORD = 'tiny'\n")
        z.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        z.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("tiny-1.0.dist-info/RECORD", "")
    (tmp_path / "requirements.txt").write_text("./tiny-1.0-py3-none-any.whl\n")
    (tmp_path / "limit.yaml").write_text("clientTimeoutInMills: 50\n")
    pack("need", "import tiny\n\n\ndef handle(data, context):\n    return data and [tiny.WORD] * len(data)\n", "-r", tmp_path / "requirements.txt", "--extra-files", wheel)
    pack("slow", archives.HANDLERS["slp"], "-c", tmp_path / "limit.yaml")
    pack("large", "def handle(data, context):\n    raise MemoryError\n")
    models = {"ok": {"1.0": {"batchSize": 3, "maxBatchDelay": 7, "minWorkers": 1, "maxWorkers": 1, "responseTimeout": 11}}}
    config = f"install_py_dep_per_model=true\nmodels={json.dumps(models)}\n"
    with archives.server(tmp_path, "torchserve", "--model-store", store, "--disable-token-auth", "--enable-model-api", config=config) as server:
        server.wait_for_log("Model server started.")
        inference, management = server.address("inference"), server.address("management")
        register(server, "url=ok.mar")
        shown = json.loads(ask(management, "GET", "/models/ok")[1])[0]
        assert [shown[k] for k in ("batchSize", "maxBatchDelay", "minWorkers", "responseTimeout")] == [3, 7, 1, 11] and len(shown["workers"]) == 1
        register(server, "url=need.mar&initial_workers=1")
        assert ask(inference, "POST", "/predictions/need", b"x")[:2] == (200, b"tiny")
        status, body, _ = ask(management, "POST", "/models?url=large.mar&initial_workers=1")
        assert (status, json.loads(body)["message"]) == (507, "Failed to start workers for model large version: 1.0")
        register(server, "url=slow.mar&initial_workers=1")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            first = pool.submit(ask, inference, "POST", "/predictions/slow", b"1")
            wait_until(lambda: json.loads(ask(management, "GET", "/models/slow")[1])[0]["jobQueueStatus"]["pendingRequests"] == 0, 10, "a request in the worker")
            others = [pool.submit(ask, inference, "POST", "/predictions/slow", b"0")]
            assert sorted(f.result()[0] for f in [first, *others]) == [200, 503]


def test_the_management_api_is_for_this_machine_and_names_are_no_paths(mms):
    """Unless config.properties says otherwise, both APIs listen on 127.0.0.1 alone; archives.server names that address, as the default does."""
    management = mms.address("management")
    port = int(management.rsplit(":", 1)[1])
    with pytest.raises(ConnectionRefusedError):
        ask(f"127.0.0.2:{port}", "GET", "/models")
    before = sorted(p.name for p in mms.store.parent.iterdir())
    for name in ("../../traversed", "..", "/etc/traversed", "a/../../traversed", "x%00y"):
        status, body, _ = ask(management, "POST", f"/models?url=ok.mar&model_name={name}&initial_workers=1")
        assert status in (200, 400, 404, 500), body
        for path in (f"/models/{name}", f"/models/{name.replace('/', '%2f')}", f"/predictions/{name}"):
            assert ask(management if path.startswith("/models") else mms.address("inference"), "GET", path)[0] in (200, 400, 404, 405)
    assert sorted(p.name for p in mms.store.parent.iterdir()) == before and not list(mms.store.parent.parent.glob("**/traversed*"))
    for url in ("..", "....//ok.mar", "store/../../ok.mar", "%2e%2e/%2e%2e/etc/passwd", "ok.mar%00.txt"):
        assert ask(management, "POST", f"/models?url={url}&model_name=outside&handler=h")[0] in (400, 404, 500)
    assert ask(management, "GET", "/models/outside")[0] == 404
