"""--access-log: a line for each request, over every protocol, in a file or on standard output."""

from __future__ import annotations

import json
import queue
import re

import numpy as np
import pytest
import tritonclient.grpc as library
from tritonclient.utils import InferenceServerException

import archives
import clients
import models
import server


def stop(running: server.Server) -> None:
    running.signal()
    assert running.wait() == 0, running.log


def test_json_lines_have_model_rows_status_and_times(serve, tmp_path):
    file = tmp_path / "access.log"
    running = serve(f"--access-log={file}", "--access-log-format=json", wanted=(models.simple(), models.slow("slow", 20))).wait_ready()
    assert clients.infer_json(running.http, clients.simple_json(id="seven")).status == 200
    assert clients.infer_json(running.http, clients.simple_json(), model="nosuch").status == 404
    answers: queue.Queue = queue.Queue()
    with library.InferenceServerClient(running.grpc) as client:
        two = np.ones((2, 16), np.int32)
        client.infer("simple", clients.pair(library, "INT32", two, two))
        with pytest.raises(InferenceServerException):
            client.get_model_metadata("nosuch")
        client.start_stream(lambda result, error: answers.put((result, error)))
        for model, inputs in (("slow", [clients.tensor(library, "INPUT0", "FP32", np.ones(2, np.float32))]), ("nosuch", [])):
            client.async_stream_infer(model, inputs)
            answers.get(timeout=10)
    stop(running)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == len([x for x in lines if x["client"].startswith("127.0.0.1:") and x["total_us"] > 0])
    seen = [x for x in lines if "health" not in x["path"]]
    method = "/inference.GRPCInferenceService/"
    assert [(x["path"], x["status"], x.get("grpc_status"), x.get("model"), x.get("rows")) for x in seen] == [
        ("/v2/models/simple/infer", 200, None, "simple", 1),
        ("/v2/models/nosuch/infer", 404, None, "nosuch", None),
        (method + "ModelInfer", 200, "OK", "simple", 2),
        (method + "ModelMetadata", 200, "NOT_FOUND", None, None),
        (method + "ModelStreamInfer", 200, "OK", "slow", 1),
        (method + "ModelStreamInfer", 200, "NOT_FOUND", "nosuch", None),
        (method + "ModelStreamInfer", 200, "OK", None, None),
    ]
    assert seen[0]["request_id"] == "seven" and seen[0]["version"] == "1" and seen[0]["response_bytes"] > 100
    assert seen[4]["compute_us"] >= 19_000 and seen[4]["total_us"] >= seen[4]["compute_us"] + seen[4]["queue_us"]


def test_common_lines_of_archives_on_standard_output(serve, tmp_path):
    source = tmp_path / "ok"
    source.mkdir()
    (source / "ok.py").write_text(archives.HANDLERS["ok"])
    archives.pack(tmp_path, "mms", "ok", source / "ok.py", tmp_path, "1.0")
    config = tmp_path / "config.properties"
    config.write_text(archives.MMS_CONFIG + f"model_store={tmp_path}\nload_models=ok.mar\ndefault_workers_per_model=1\n")
    running = serve("--model-server=mms", "--model-server-config", config, "--access-log=-")
    running.wait_for_log("Model server started.")
    for path in ("/predictions/ok", "/predictions/nosuch"):
        server.post(running.address("inference"), path, b"abc")
    stop(running)
    head = r'^127\.0\.0\.1 - - \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] '
    assert re.search(
        head + r'"POST /predictions/ok HTTP/1\.1" 200 2 model="ok" rows=1 queue_us=\d+ compute_us=\d+ total_us=\d+$', running.log, re.M
    ), running.log
    assert re.search(head + r'"POST /predictions/nosuch HTTP/1\.1" 404 \d+ model="nosuch" total_us=\d+$', running.log, re.M), running.log


def test_a_form_that_there_is_not_is_refused(tmp_path):
    with server.Server("--demo", "--access-log=-", "--access-log-format=xml") as running:
        assert running.wait() == 2
        assert '--access-log-format is "xml": want common or json' in running.log
