"""docs/tutorial-batching.md works as it is written: its commands run, its configurations load, and batching does what it says.

The commands run in one shell in the order of the page, with three changes: free ports in place of 8000 to 8002, the
test's own folder in place of build/tutorial, and none of the outer make's variables.
"""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from server import ROOT, environment, free_port

PAGE = ROOT / "docs" / "tutorial-batching.md"
TIMEOUT = 180  # seconds for all commands, which take 30 on two idle cores
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LOAD = re.compile(r"^callers +(\d+): +(\d+) infer/s,.* mean batch +([\d.]+)", re.MULTILINE)


def blocks() -> list[tuple[str, str]]:
    """The fenced blocks of the page: what is written behind the fence, and the content."""
    return _BLOCK.findall(PAGE.read_text())


def test_every_block_says_what_it_is():
    kinds = {kind for kind, _ in blocks()}
    assert kinds == {"sh test", "sh", "pbtxt", "text"}, "a command that no test runs must be a plain sh block, on purpose"
    shown = [content for kind, content in blocks() if kind == "sh"]
    assert all(line.startswith(("perf_analyzer", " ")) for content in shown for line in content.splitlines()), shown


def test_pictures_and_pages_are_there():
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text()):
        if not link.startswith("https://"):
            assert (PAGE.parent / link).exists(), link


def test_configurations_load(serve, tmp_path):
    snippets = [content for kind, content in blocks() if kind == "pbtxt"]
    for i, snippet in enumerate(snippets):
        folder = tmp_path / "snippets" / f"snippet_{i}"
        (folder / "1").mkdir(parents=True)
        (folder / "config.pbtxt").write_text(
            'backend: "identity"\nmax_batch_size: 16\n'
            'input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
            'output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] } ]\n' + snippet
        )
    assert snippets
    server = serve("--model-repository", tmp_path / "snippets", "--strict-readiness=true").wait_ready()
    assert not re.search("level=WARN", server.log), server.log


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the commands printed, by block."""
    return walk([content for kind, content in blocks() if kind == "sh test"], tmp_path_factory.mktemp("tutorial"))


def walk(commands: list[str], folder: pathlib.Path) -> list[str]:
    mark = "--- the next block ---"
    script = f"\necho '{mark}'\n".join(commands).replace("T=build/tutorial", f"T={folder}")
    taken = [free_port() for _ in range(3)]
    ports = [port for _, port in taken]
    for listener, _ in taken:
        listener.close()
    script = script.replace(
        "shoal serve", f"shoal serve --http-port={ports[0]} --grpc-port={ports[1]} --metrics-port={ports[2]} --http-address=127.0.0.1"
    ).replace("localhost:8000", f"127.0.0.1:{ports[0]}")
    assert f"T={folder}" in script and not re.search(r":800[0-2]", script)
    env = {k: v for k, v in environment().items() if not k.startswith("MAKE") and k not in ("MFLAGS", "ARGS")}
    env["PATH"] = str(pathlib.Path(sys.executable).parent) + os.pathsep + env["PATH"]
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=ROOT, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = shell.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        out, err = shell.communicate()
        raise AssertionError(f"the commands did not end in {TIMEOUT} s:\n{out}\n{err}") from None
    finally:
        if shell.poll() != 0:
            try:
                os.killpg(shell.pid, signal.SIGKILL)  # the server of the step that failed
            except ProcessLookupError:
                pass
    log = folder / "shoal.log"  # where the page sends it
    assert shell.returncode == 0, f"{out}\n{err}\nthe server's log:\n{log.read_text() if log.exists() else 'none'}"
    return out.split(mark)


def loads(walked: list[str]) -> list[list[tuple[float, float]]]:
    """Throughput and mean batch at 1 and 16 callers, of each load in turn: credsweeper and mlp on each step."""
    found = [(int(callers), float(rate), float(batch)) for callers, rate, batch in _LOAD.findall("".join(walked))]
    assert [callers for callers, _, _ in found] == [1, 16] * 6, found
    return [[found[i][1:], found[i + 1][1:]] for i in range(0, 12, 2)]


def test_commands_run_and_answer(walked):
    out = "".join(walked)
    assert '"model_name":"mlp"' in out and "prediction [[0." in out, out
    assert out.count("mean batch 1.0\n") == 1, "the statistics of step 1 have a mean batch of exactly 1:\n" + out


@pytest.mark.parametrize("model", [0, 1], ids=["credsweeper", "mlp"])
def test_without_batching_every_row_runs_alone(walked, model):
    one, sixteen = loads(walked)[model]
    assert one[1] == 1 and sixteen[1] == 1


@pytest.mark.parametrize("model", [0, 1], ids=["credsweeper", "mlp"])
def test_dynamic_batching_gathers_and_answers_more(walked, model):
    plain, batched = loads(walked)[model][1], loads(walked)[2 + model][1]
    assert batched[1] > 4, f"a mean batch of {batched[1]} of 16 callers"
    # The page promises more; a busy machine may take some of it.
    assert batched[0] > 2 * plain[0], f"{batched[0]} infer/s with batching, {plain[0]} without"


@pytest.mark.parametrize("model", [0, 1], ids=["credsweeper", "mlp"])
def test_two_instances_batch_too(walked, model):
    plain, twice = loads(walked)[model][1], loads(walked)[4 + model][1]
    assert twice[1] > 2 and twice[0] > 1.5 * plain[0], f"mean batch {twice[1]}, {twice[0]} infer/s, {plain[0]} without batching"


def test_lone_caller_runs_alone_on_every_step(walked):
    assert [lone[1] for lone, _ in loads(walked)] == [1] * 6
