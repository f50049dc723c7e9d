"""Every route as curl sees it: testdata/curl has the command, the status line, the headers and the body.

UPDATE_GOLDEN=1 (`make golden`) rewrites the files; the diff is reviewed. Headers are sorted, ports and times
replaced, and the lengths of bodies that hold times too.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess

import pytest

import clients
import models
import server
import tools

GOLDEN = pathlib.Path(__file__).parent / "testdata" / "curl"


@dataclasses.dataclass(frozen=True)
class Case:
    """One command: the path, and curl's options for it."""

    path: str
    options: tuple[str, ...] = ()
    port: str = "http"
    timed: bool = False  # the body holds times or numbers that differ from run to run


def data(body: object) -> tuple[str, ...]:
    text = body if isinstance(body, str) else json.dumps(body, separators=(",", ":"))
    return ("-d", text)


SIMPLE = clients.simple_json()
INFER = "/v2/models/simple/infer"

CASES: dict[str, Case] = {
    "health_live": Case("/v2/health/live"),
    "health_ready": Case("/v2/health/ready"),
    "health_live_head": Case("/v2/health/live", ("-I",)),
    "health_live_post": Case("/v2/health/live", data("")),
    "server_metadata": Case("/v2"),
    "server_metadata_trailing_slash": Case("/v2/"),
    "server_metadata_post": Case("/v2", data("")),
    "model_metadata": Case("/v2/models/simple"),
    "model_metadata_version": Case("/v2/models/simple/versions/1"),
    "model_metadata_two_versions": Case("/v2/models/versions_all"),
    "model_metadata_query": Case("/v2/models/simple?x=1"),
    "model_metadata_unknown": Case("/v2/models/nosuch"),
    "model_metadata_unknown_version": Case("/v2/models/simple/versions/9"),
    "model_metadata_version_word": Case("/v2/models/simple/versions/abc"),
    "model_metadata_encoded_name": Case("/v2/models/simp%6ce"),
    "model_metadata_delete": Case("/v2/models/simple", ("-X", "DELETE")),
    "models": Case("/v2/models"),
    "model_ready": Case("/v2/models/simple/ready"),
    "model_ready_version": Case("/v2/models/simple/versions/1/ready"),
    "model_ready_unknown": Case("/v2/models/nosuch/ready"),
    "model_ready_unknown_version": Case("/v2/models/simple/versions/9/ready"),
    "model_config": Case("/v2/models/simple/config"),
    "model_config_version": Case("/v2/models/simple/versions/1/config"),
    "model_config_autocompleted": Case("/v2/models/auto_add_sub/config"),
    "model_config_unknown": Case("/v2/models/nosuch/config"),
    "model_config_post": Case("/v2/models/simple/config", data("")),
    "infer": Case(INFER, data(SIMPLE)),
    "infer_version": Case("/v2/models/simple/versions/1/infer", data(SIMPLE)),
    "infer_newest_version": Case(
        "/v2/models/versions_all/infer",
        data({"inputs": [{"name": "INPUT0", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}),
    ),
    "infer_output_subset": Case(INFER, data(clients.simple_json(outputs=[{"name": "OUTPUT1"}]))),
    "infer_binary_output": Case(
        INFER, data(clients.simple_json(outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": True}}]))
    ),
    "infer_classification": Case(
        "/v2/models/labelled/infer",
        data(
            {
                "inputs": [{"name": "INPUT0", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 0.5, 0]}],
                "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 3}}],
            }
        ),
    ),
    "infer_gzip": Case(INFER, ("--compressed", "-H", "Accept-Encoding: gzip", *data(SIMPLE)), timed=True),
    "infer_deflate": Case(INFER, ("--compressed", "-H", "Accept-Encoding: deflate", *data(SIMPLE)), timed=True),
    "infer_close": Case(INFER, ("-H", "Connection: close", *data(SIMPLE))),
    "infer_get": Case(INFER),
    "infer_options": Case(INFER, ("-X", "OPTIONS")),
    "infer_empty_body": Case(INFER, ("-X", "POST")),
    "infer_garbage": Case(INFER, data("{garbage")),
    "infer_missing_input": Case(INFER, data({**SIMPLE, "inputs": SIMPLE["inputs"][:1]})),
    "infer_unknown_output": Case(INFER, data(clients.simple_json(outputs=[{"name": "NOPE"}]))),
    "infer_unknown_model": Case("/v2/models/nosuch/infer", data(SIMPLE)),
    "infer_unknown_version": Case("/v2/models/simple/versions/9/infer", data(SIMPLE)),
    "infer_unknown_encoding": Case(INFER, ("-H", "Content-Encoding: br", *data(SIMPLE))),
    "model_stats": Case("/v2/models/simple/stats", timed=True),
    "model_stats_version": Case("/v2/models/versions_all/versions/1/stats", timed=True),
    "model_stats_all": Case("/v2/models/stats", timed=True),
    "model_stats_unknown": Case("/v2/models/nosuch/stats"),
    "repository_index": Case("/v2/repository/index", ("-X", "POST")),
    "repository_index_ready": Case("/v2/repository/index", data({"ready": True})),
    "repository_index_bad_ready": Case("/v2/repository/index", data({"ready": "yes"})),
    "repository_index_garbage": Case("/v2/repository/index", data("{garbage")),
    "repository_index_get": Case("/v2/repository/index"),
    "repository_load": Case("/v2/repository/models/simple/load", ("-X", "POST")),
    "repository_unload": Case("/v2/repository/models/simple/unload", ("-X", "POST")),
    "unknown_path": Case("/v2/nosuch"),
    "unknown_model_path": Case("/v2/models/simple/nosuch"),
    "unknown_health": Case("/v2/health/foo"),
    "root": Case("/"),
    "metrics_on_http": Case("/metrics"),
    "metrics": Case("/metrics", port="metrics", timed=True),
    "metrics_unknown_path": Case("/foo", port="metrics"),
    "metrics_post": Case("/metrics", data(""), port="metrics"),
}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A server of its own, so that its counters depend on nothing but the commands below."""
    wanted = [models.simple(), models.labelled(), models.two_versions("versions_all", "all { }")]
    wanted.append(models.Model("auto_add_sub", versions={1: models.add_sub("FP32").versions[1]}, config=None))
    repository = models.write(tmp_path_factory.mktemp("curl"), *wanted)
    with server.Server("--model-repository", repository, "--id=triton", *server.PORTS, *server.LOOPBACK) as started:
        yield started.wait_ready()


def transcript(case: Case, address: str) -> str:
    command = ["curl", "-i", *case.options, f"http://{address}{case.path}"]
    if "-I" in case.options:
        command.remove("-i")
    done = subprocess.run([command[0], "-sS", "--max-time", "10", *command[1:]], capture_output=True, check=True)
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    status, *headers = head.decode().split("\r\n")
    shown = "\n".join([f"$ {shlex.join(command)}", status, *sorted(headers), "", readable(body)])
    return normal(shown, address, case.timed)


def readable(body: bytes) -> str:
    """The body as text; what follows the JSON of a binary answer as escapes."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() or text.replace("\n", "").isprintable():
        return text
    return body.decode("latin-1").encode("unicode_escape").decode()


def normal(text: str, address: str, timed: bool) -> str:
    text = text.replace(address, "127.0.0.1:PORT")
    text = re.sub(r"^Date: .*", "Date: DATE", text, flags=re.MULTILINE)
    text = re.sub(r'("version":)"\d+\.\d+\.\d+[^"]*"', r'\1"VERSION"', text)
    if timed:
        text = re.sub(r'"ns":\d+', '"ns":NS', text)
        text = re.sub(r'"last_inference":[1-9]\d*', '"last_inference":MS', text)
        text = re.sub(r"Content-Length: \d+", "Content-Length: N", text)
        text = re.sub(r"^((?!# |\$ |HTTP)\w+(?:\{.*\})?) [-+.\deE]+$", r"\1 VALUE", text, flags=re.MULTILINE)
    return text.rstrip("\n") + "\n"


def families(text: str) -> str:
    """The metrics of the protocol without those of this process, whose set depends on the system."""
    kept = [line for line in text.splitlines() if not re.match(r"(# \w+ )?(?!nv_|\$|HTTP|Content)\w+", line)]
    return "\n".join(kept) + "\n"


def test_every_route_answers_as_recorded(running):
    """One test for all, because the counters depend on the order."""
    tools.need("curl")
    wrong = []
    for name, case in CASES.items():
        got = transcript(case, running.address(case.port))
        if name == "metrics":
            got = families(got)
        if not same(GOLDEN / f"{name}.txt", got):
            wrong.append(name)
            print(f"--- {name}: got\n{got}")
    assert not wrong, f"these differ from testdata/curl: {', '.join(wrong)}"


def same(file: pathlib.Path, got: str) -> bool:
    """Compares with the recorded transcript, or records it when asked to."""
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(got)
    return file.exists() and file.read_text() == got


def test_every_transcript_has_its_command():
    assert {f.stem for f in GOLDEN.glob("*.txt")} == set(CASES)
