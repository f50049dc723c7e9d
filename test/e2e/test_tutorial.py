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
import typing

import pytest

import tools
from server import LOOPBACK, ROOT, environment, free_port

PAGE = ROOT / "docs" / "tutorial-batching.md"
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LOAD = re.compile(r"^Request concurrency: (\d+)$.*?^    Throughput: ([\d.]+) infer/sec$.*?^    \| mean batch: ([\d.]+) rows$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """The fenced blocks of the page: what is written behind the fence, and the content."""
    return _BLOCK.findall(PAGE.read_text())


def test_every_block_says_what_it_is():
    kinds = {kind for kind, _ in blocks()}
    assert kinds == {"sh test", "pbtxt", "text"}, "every command of the page is tested"


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


COMMANDS = [content for kind, content in blocks() if kind == "sh test"]


class Walk:
    """A shell that runs the page's commands, block by block. A command that fails ends it; once, the next test begins the page anew."""

    MARK = "--- the end of the block ---"

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.failures: list[str] = []
        self._start()

    def _start(self) -> None:
        self.outputs: list[str] = []  # of the blocks that ran
        self.ports = [free_port() for _ in range(3)]
        env = {k: v for k, v in environment().items() if not k.startswith("MAKE") and k not in ("MFLAGS", "ARGS")}
        env["PATH"] = str(pathlib.Path(sys.executable).parent) + os.pathsep + env["PATH"]
        self.shell = subprocess.Popen(
            ["bash", "-euo", "pipefail"],
            cwd=ROOT, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def until(self, n: int) -> str:
        """Runs the blocks up to number n that have not run yet, and returns what all of them printed."""
        if len(self.failures) > 1:
            raise AssertionError(self.failures[-1])
        while len(self.outputs) <= n:
            self.outputs.append(self._run(len(self.outputs)))
        return "".join(self.outputs[: n + 1])

    def _run(self, n: int) -> str:
        file = self.folder / f"block_{n}.sh"
        file.write_text(self._here(COMMANDS[n]))
        stdin, stdout = typing.cast(typing.IO[str], self.shell.stdin), typing.cast(typing.IO[str], self.shell.stdout)
        stdin.write(f". {file} < /dev/null\necho '{self.MARK}'\n")
        stdin.flush()
        lines: list[str] = []
        for line in stdout:
            if line.endswith(self.MARK + "\n"):  # curl's answers end without a newline
                lines.append(line.removesuffix(self.MARK + "\n"))
                return "".join(lines)
            lines.append(line)
        log = self.folder / "shoal.log"  # where the page sends it
        self.failures.append(
            f"block {n} failed:\n{COMMANDS[n]}\nIt printed:\n{''.join(lines)}\nThe server's log:\n{log.read_text() if log.exists() else 'none'}"
        )
        self.close()
        self._start()
        raise AssertionError(self.failures[-1])

    def _here(self, commands: str) -> str:
        http, grpc, metrics = self.ports
        serve = f"shoal serve --http-port={http} --grpc-port={grpc} --metrics-port={metrics} {' '.join(LOOPBACK)}"
        changed = (
            commands.replace("T=build/tutorial", f"T={self.folder}")
            .replace("shoal serve", serve)
            .replace("shoal perf", f"shoal perf -u 127.0.0.1:{http}")
            .replace("localhost:8000", f"127.0.0.1:{http}")
        )
        assert not re.search(r":800[0-2]", changed), changed
        return changed

    def close(self) -> None:
        try:
            os.killpg(self.shell.pid, signal.SIGKILL)  # with a server that a failed block left
        except ProcessLookupError:
            pass
        self.shell.communicate()


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory):
    tools.need("curl")
    walk = Walk(tmp_path_factory.mktemp("tutorial"))
    yield walk
    walk.close()


@pytest.mark.parametrize("n", range(len(COMMANDS)))
def test_block_runs(walk, n):
    walk.until(n)


@pytest.fixture
def printed(walk: Walk) -> str:
    """What all commands printed."""
    return walk.until(len(COMMANDS) - 1)


def loads(printed: str) -> list[list[tuple[float, float]]]:
    """Throughput and mean batch at 1 and 16 callers, of each load in turn: credsweeper and mlp on each step."""
    found = [(int(callers), float(rate), float(batch)) for callers, rate, batch in _LOAD.findall(printed)]
    assert [callers for callers, _, _ in found] == [1, 16] * 6, found
    return [[found[i][1:], found[i + 1][1:]] for i in range(0, 12, 2)]


def test_both_models_answer(printed):
    assert '"model_name":"mlp"' in printed and "prediction [[0." in printed, printed


def test_only_the_first_statistics_have_a_mean_batch_of_one(printed):
    means = re.findall(r"^mean batch ([\d.]+)$", printed, re.MULTILINE)
    assert len(means) == 3 and means[0] == "1.0" and "1.0" not in means[1:], printed


@pytest.mark.parametrize("model", [0, 1], ids=["credsweeper", "mlp"])
def test_without_batching_every_row_runs_alone(printed, model):
    one, sixteen = loads(printed)[model]
    assert one[1] == 1 and sixteen[1] == 1


@pytest.mark.parametrize("model", [0, 1], ids=["credsweeper", "mlp"])
def test_dynamic_batching_gathers_and_answers_more(printed, model):
    plain, batched = loads(printed)[model][1], loads(printed)[2 + model][1]
    assert batched[1] > 4, f"a mean batch of {batched[1]} of 16 callers"
    # The page promises more; what shares the machine may take most of it.
    assert batched[0] > plain[0], f"{batched[0]} infer/s with batching, {plain[0]} without"


@pytest.mark.parametrize("model", [0, 1], ids=["credsweeper", "mlp"])
def test_two_instances_batch_too(printed, model):
    # On a free machine batches have 4 rows and more; on a busy one an instance is often idle when a request comes.
    plain, twice = loads(printed)[model][1], loads(printed)[4 + model][1]
    assert twice[1] > 1.2 and twice[0] > 1.2 * plain[0], f"mean batch {twice[1]}, {twice[0]} infer/s, {plain[0]} without batching"


def test_lone_caller_runs_alone_on_every_step(printed):
    assert [lone[1] for lone, _ in loads(printed)] == [1] * 6
