"""Texts of exceptions in users' code, for a client and for the log."""

from __future__ import annotations

import os
import traceback
from typing import Iterator

_HERE = os.path.dirname(os.path.abspath(__file__))


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
    )


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
    """The whole traceback, for the log."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
