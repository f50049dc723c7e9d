"""Errors in users' code: tracebacks as Python shows them, told once."""

from __future__ import annotations

import traceback

from shoal import _faults, _load


def caught(run) -> BaseException:
    try:
        run()
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


def test_a_traceback_has_the_calls_of_the_user_only(tmp_path):
    (tmp_path / "model.py").write_text("import shoal\n\n\ndef late():\n    raise ValueError('no')\n\n\nlate()\n")
    error = caught(lambda: _load.load({"model_file": str(tmp_path / "model.py")}))
    text = _faults.trace(error)
    assert "_load.py" in "".join(traceback.format_exception(error)) and "_load.py" not in text and "frozen" not in text
    assert text.startswith("Traceback (most recent call last):\n") and text.endswith("\nValueError: no")
    assert f'File "{tmp_path}/model.py", line 5, in late' in text


def test_a_syntax_error_is_shown_with_its_line(tmp_path):
    (tmp_path / "model.py").write_text("class M(\n")
    text = _faults.trace(caught(lambda: _load.load({"model_file": str(tmp_path / "model.py")})))
    assert f'File "{tmp_path}/model.py", line 1' in text and "SyntaxError" in text and "_load.py" not in text


def test_an_error_is_told_once_and_then_counted():
    now = [0.0]
    repeats = _faults.Repeats(lambda: now[0])
    assert repeats.text("a") == "a"
    assert [repeats.text("a") for _ in range(3)] == ["", "", ""]
    assert repeats.text("b") == "b"
    now[0] = 12
    assert repeats.text("a") == "a\n(and 3 times more in the last 12 s)"
    now[0] = 30
    assert repeats.text("a") == "a"
