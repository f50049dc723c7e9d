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
    assert repeats.rest() == []


def test_what_was_counted_is_told_at_the_end():
    repeats = _faults.Repeats(lambda: 7.0)
    for text in ["Traceback:\n  f()\nKeyError: 'a'"] * 3 + ["b"]:
        repeats.text(text)
    assert repeats.rest() == ["KeyError: 'a' (and 2 times more in the last 0 s)"]
    assert repeats.rest() == []


def test_files_are_named_as_the_user_knows_them(tmp_path, monkeypatch):
    """An archive's by its archive, those of `shoal serve --model FOLDER` by the folder that the link is of."""
    (tmp_path / "mine" / "1").mkdir(parents=True)
    (tmp_path / "mine" / "1" / "model.py").write_text("import importlib\n\nimportlib.import_module('nosuch')\n")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    error = caught(lambda: _load.load({"model_file": str(tmp_path / "link" / "1" / "model.py")}))
    text = _faults.trace(error)
    assert f'File "{tmp_path}/mine/1/model.py", line 3, in <module>' in text and "__init__.py" not in text, text
    monkeypatch.setattr(_faults, "_folders", {})
    _faults.call_folder(str(tmp_path / "mine"), "mine.mar")
    assert 'File "mine.mar/1/model.py", line 3, in <module>\n    importlib.import_module' in _faults.trace(error)
