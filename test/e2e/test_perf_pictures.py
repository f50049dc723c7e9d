"""What shoal perf shows while it measures, on a real terminal, and the pictures it leaves behind."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import xml.etree.ElementTree

import pytest

import server

# Windows that are short and need not agree, but long enough for an answer on a busy machine.
QUICK = ("-p", "250", "-s", "900", "--allow-unstable")
ESCAPE = b"\x1b"
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


class Terminal:
    """A command whose input and errors are a terminal; its output is a pipe or that terminal."""

    def __init__(self, command: list[str], cwd, shared: bool = False) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.modes = termios.tcgetattr(slave)
        self.slave = slave
        self.seen = b""
        self.out = open(cwd / "stdout", "w+b")
        env = {**os.environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave if shared else self.out, stderr=slave, cwd=cwd, env=env, start_new_session=True)

    def read(self, until: bytes | None = None, limit: float = 40) -> bytes:
        """Takes what is shown until it has a text or the command has ended."""
        deadline = time.monotonic() + limit
        while until is None or until not in self.seen:
            ended = self.process.poll() is not None
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536)
            elif ended:
                break
            assert time.monotonic() < deadline, f"no {until!r} in {self.seen!r}"
        return self.seen

    def end(self, limit: float = 40) -> bytes:
        self.read(limit=limit)
        self.process.wait(limit)
        assert termios.tcgetattr(self.slave) == self.modes, "the terminal is not as it was"
        self.out.seek(0)
        return self.out.read()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)
        self.out.close()


@pytest.fixture
def terminal(target, tmp_path):
    """A function that runs shoal perf on a terminal."""
    started = []

    def run(*args: str, shared: bool = False) -> Terminal:
        t = Terminal([str(server.BINARY), "perf", "-m", "simple", "-u", target.http, *QUICK, *args], tmp_path, shared)
        started.append(t)
        return t

    yield run
    for t in started:
        t.close()


def words(report: bytes) -> list[str]:
    """A report without figures and without the lines that depend on how busy the machine was."""
    return [re.sub(r"[\d.e+]+", "#", line) for line in report.decode().splitlines() if not line.strip().startswith(("|", "[WARNING]"))]


def test_the_report_is_the_same_with_and_without_the_view(terminal):
    reports = {}
    for mode in ("off", "line", "full"):
        t = terminal("--concurrency-range", "2", "--request-count", "20000", "--live", mode)
        reports[mode] = t.end()
        assert t.process.returncode == 0, t.seen
        assert ESCAPE not in reports[mode]
        assert (ESCAPE in t.seen) == (mode != "off")
    assert words(reports["line"]) == words(reports["off"])
    assert words(reports["full"]) == words(reports["off"])


def test_a_terminal_gets_a_line_unasked(terminal):
    t = terminal("--concurrency-range", "1:2")
    t.end()
    line = re.search(rb"c=\d  window \d/3\+.*?/s  p50 .*? p99 .*?err 0", t.seen)
    assert line, t.seen
    assert b"(level 2 of 2" in t.seen
    assert ENTER not in t.seen


def test_the_screen_goes_before_the_report_comes(terminal):
    t = terminal("--concurrency-range", "1:2", "--live=full", shared=True)
    t.end()
    assert t.seen.index(ENTER) < t.seen.index(LEAVE) < t.seen.index(b"Request concurrency: 1")
    assert b"Concurrency: 2, throughput: " in t.seen


@pytest.mark.parametrize("how", ["key", "signal"])
@pytest.mark.parametrize("mode", ["line", "full"])
def test_an_interrupted_run_leaves_the_terminal_whole_and_the_files_written(terminal, tmp_path, mode, how):
    t = terminal("--concurrency-range", "1:100", "--live", mode, "--html", "r.html", "--plot", "r.svg")
    t.read(until=b"c=2")
    if how == "key" and mode == "full":
        os.write(t.master, b"\x03")
    else:  # a line leaves the terminal's own Ctrl-C alone, which is this signal
        os.kill(t.process.pid, signal.SIGINT)
    report = t.end()
    assert t.process.returncode == 130, t.seen
    assert b"interrupted" in t.seen
    assert re.search(rb"^Concurrency: 1, throughput: ", report, re.M), report
    if mode == "full":
        assert t.seen.rindex(LEAVE) > t.seen.rindex(ENTER)
    page = (tmp_path / "r.html").read_text()
    assert "The run ended before its plan did" in page and "interrupted" in page
    xml.etree.ElementTree.parse(tmp_path / "r.svg")


def test_without_a_terminal_there_are_plain_lines_or_nothing(target, tmp_path):
    command = [str(server.BINARY), "perf", "-m", "simple", "-u", target.http, "--concurrency-range", "2", *QUICK]
    lines = subprocess.run([*command, "--plot=p.svg"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert re.fullmatch(r"(c=2  window \d.*/s  p50 .*err 0\n){3,}wrote p.svg\n", lines.stderr), lines.stderr
    quiet = subprocess.run([*command, "--live=off"], capture_output=True, timeout=60, cwd=tmp_path)
    assert quiet.returncode == 0 and quiet.stderr == b"", quiet.stderr
    full = subprocess.run([*command, "--live=full"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert full.returncode == 99 and "--live=full needs a terminal" in full.stderr


def test_pictures_are_written(target, tmp_path):
    command = [str(server.BINARY), "perf", "-m", "simple", "-u", target.http, "--concurrency-range", "1:2", *QUICK]
    for flags in (["--html", "a.html", "--plot", "a.svg"], ["--report-html", "b.html", "--plot", "b.png"]):
        done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    for name in ("a.html", "b.html"):
        page = (tmp_path / name).read_text()
        assert len(page) < 600_000
        assert "throughput (infer/s)" in page and "batch size (rows)" in page and "simple" in page
    root = xml.etree.ElementTree.parse(tmp_path / "a.svg").getroot()
    assert "latency" in "".join(root.itertext())
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    wrong = subprocess.run([*command, "--plot", "c.gif"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert wrong.returncode == 99 and ".svg or .png" in wrong.stderr
