"""Texts of exceptions in users' code, for a client and for the log."""

from __future__ import annotations

import importlib
import os
import time
import traceback
import types
from typing import Callable, Iterator

_HERE = os.path.dirname(os.path.abspath(__file__))
_folders: dict[str, str] = {}  # names of folders that users do not know


def call_folder(folder: str, name: str) -> None:
    """Has tracebacks name a folder, such as the temporary one of an archive, as the user knows it."""
    _folders[os.path.join(os.path.realpath(folder), "")] = os.path.join(name, "")


def _known(filename: str) -> str:
    for folder, name in _folders.items():
        if os.path.realpath(filename).startswith(folder):
            return name + os.path.realpath(filename)[len(folder) :]
    return filename


class Refused(Exception):
    """An error that has no line in the user's file."""


def frames(error: BaseException) -> Iterator[traceback.FrameSummary]:
    """The calls that led to the error, innermost first, without those of this package."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not _ours(frame.filename):
            yield frame


def _ours(filename: str) -> bool:
    return (
        os.path.dirname(filename) == _HERE
        or os.path.basename(filename) == "triton_python_backend_utils.py"
        or filename.startswith("<frozen ")
        or filename == importlib.__file__
    )


def outside(trace: types.TracebackType | None) -> types.TracebackType | None:
    """The part of a traceback that begins in the user's code."""
    while trace is not None and _ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def last_line(error: BaseException) -> str:
    """The error's type and text: `ValueError: no such label`."""
    return f"{type(error).__name__}: {str(error) or '<EMPTY MESSAGE>'}"


def describe(error: BaseException) -> str:
    """The error in the form of Triton's Python backend: last line, then the calls."""
    if isinstance(error, Refused):
        return str(error)
    text = last_line(error)
    if isinstance(error, SyntaxError):
        where = os.path.basename(error.filename or "?")
        text = f"{type(error).__name__}: {error.msg} ({where}, line {error.lineno})"
    calls = [f"  {f.filename}({f.lineno}): {f.name}\n" for f in frames(error)]
    return text + ("\n\nAt:\n" + "".join(calls) if calls else "")


def brief(error: BaseException, file: str = "") -> str:
    """The error in one line, with its place: the innermost call in that file, else in any."""
    text = last_line(error)
    calls = list(frames(error))
    for frame in [f for f in calls if f.filename == file] or calls:
        return f"{text} (line {frame.lineno} of {os.path.basename(frame.filename)}, in {frame.name})"
    return text


def trace(error: BaseException) -> str:
    """The traceback as Python shows it, without the calls of this package, for the log."""
    told = traceback.TracebackException(type(error), error, error.__traceback__)
    pending: list[traceback.TracebackException | None] = [told]
    while pending:
        one = pending.pop()
        if one is not None:
            one.stack[:] = [f for f in one.stack if not _ours(f.filename)]
            for frame in one.stack:
                frame.filename = _known(frame.filename)
            pending += [one.__cause__, one.__context__]
    lines = list(told.format())
    if not told.stack and told.__cause__ is None and told.__context__ is None and not isinstance(error, SyntaxError):
        lines = lines[1:]  # a heading with nothing below it
    return "".join(lines).rstrip()


class Repeats:
    """Tells an error once. The same one is told again after a while, with how often it came in between."""

    PERIOD = 10.0  # seconds

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._told: dict[str, list[float]] = {}  # text to when it was told, and how often it came since

    def text(self, trace: str) -> str:
        """What to log of this traceback now; empty when it is only counted."""
        now = self._clock()
        known = self._told.get(trace)
        if known is not None and now - known[0] < self.PERIOD:
            known[1] += 1
            return ""
        if len(self._told) > 100:  # texts with changing parts
            self._told.clear()
        self._told[trace] = [now, 0]
        if known is None or known[1] == 0:
            return trace
        return f"{trace}\n{self._more(known, now)}"

    def rest(self) -> list[str]:
        """What was counted and not told yet, by the last lines of the tracebacks."""
        now, told = self._clock(), self._told
        self._told = {}
        return [f"{trace.splitlines()[-1]} {self._more(known, now)}" for trace, known in told.items() if known[1]]

    @staticmethod
    def _more(known: list[float], now: float) -> str:
        return f"(and {known[1]:.0f} times more in the last {now - known[0]:.0f} s)"


_repeats = Repeats()
rest = _repeats.rest


def told(error: BaseException) -> str:
    """What to log of an error in a user's code now: its traceback, or nothing when it was logged just before."""
    return _repeats.text(trace(error))
