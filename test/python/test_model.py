"""The ten-line API: what a class or function declares, and what becomes of right and wrong returns."""

from __future__ import annotations

import pathlib
import textwrap
from typing import Annotated

import numpy as np
import pytest
from fakes import Batch, Request

import shoal
from shoal import _declare, _load, _model


class Mean(shoal.Model):
    x = shoal.Input("float32", [-1])
    mean = shoal.Output("float32")
    size = shoal.Output("int64", [1])

    def load(self):
        self.loaded = self.context.name

    def predict(self, x):
        return {"mean": x.mean(axis=1), "size": np.full((len(x), 1), x.shape[1])}


def handler(target, **more):
    made = _model.Handler(_declare.declaration(target, **more), {"model_name": "m"})
    made.start()
    return made


def run(target, *rows: dict, **more) -> Batch:
    batch = Batch(*(Request(r, rows=len(next(iter(r.values())))) for r in rows))
    handler(target, **more).execute(batch)
    return batch


def floats(*rows) -> np.ndarray:
    return np.array(rows, np.float32)


def test_a_class_describes_its_configuration():
    assert handler(Mean).describe() == {
        "name": "m", "backend": "python", "max_batch_size": 32, "dynamic_batching": {},
        "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "mean", "data_type": "TYPE_FP32", "dims": [1]}, {"name": "size", "data_type": "TYPE_INT64", "dims": [1]}],
    }  # fmt: skip


def test_a_batch_is_one_call_of_predict():
    batch = run(Mean, {"x": floats([1, 3])}, {"x": floats([2, 4], [6, 8])})
    assert batch.whole["mean"].tolist() == [[2], [3], [7]] and batch.whole["size"].tolist() == [[2], [2], [2]]
    assert batch.whole["mean"].dtype == np.float32


def test_rows_of_different_shape_are_answered_request_by_request():
    batch = run(Mean, {"x": floats([1, 3])}, {"x": floats([2, 4, 6])})
    assert [r.answers[0][0]["mean"].tolist() for r in batch.requests] == [[[2]], [[4]]]


def test_load_runs_once_with_its_context():
    made = handler(Mean)
    assert made._model.loaded == "m" and made._model.context.device == "cpu"


def test_predict_takes_its_inputs_in_its_own_order():
    class Minus(shoal.Model):
        a = shoal.Input("float32", [1])
        b = shoal.Input("float32", [1])
        y = shoal.Output("float32", [1])

        def predict(self, b, a):
            return b - a

    assert run(Minus, {"a": floats([1]), "b": floats([5])}).whole["y"].tolist() == [[4]]


def test_load_may_set_another_predict():
    class Compiled(shoal.Model):
        x = shoal.Input("float32", [1])
        y = shoal.Output("float32", [1])

        def load(self):
            self.predict = lambda x: x * 2

        def predict(self, x):
            raise NotImplementedError

    assert run(Compiled, {"x": floats([3])}).whole["y"].tolist() == [[6]]


def test_a_function_with_hints():
    def double(x: Annotated[np.ndarray, shoal.Input("int32", [2])]) -> Annotated[np.ndarray, shoal.Output("int32", [2])]:
        return x * 2

    double.__annotations__ = {
        "x": Annotated[np.ndarray, shoal.Input("int32", [2])], "return": Annotated[np.ndarray, shoal.Output("int32", [2])]
    }  # fmt: skip
    assert run(double, {"x": np.array([[1, 2]], np.int32)}).whole["output"].tolist() == [[2, 4]]


def test_a_decorated_function_stays_callable():
    @shoal.model(inputs={"x": ("float32", [-1])}, outputs={"y": "float32"}, max_batch=4)
    def total(x):
        return x.sum(axis=1)

    assert total(floats([1, 2])).tolist() == [3]
    assert run(total, {"x": floats([1, 2])}).whole["y"].tolist() == [[3]]
    assert handler(total).describe()["max_batch_size"] == 4


def test_predict_may_take_the_whole_batch():
    seen = {}

    class All(shoal.Model):
        a = shoal.Input("float32", [1])
        b = shoal.Input("float32", [1])
        y = shoal.Output("float32", [1])

        def predict(self, batch):
            seen.update(rows=batch.rows, ids=batch.ids, counts=batch.counts)
            return batch["a"] + batch["b"]

    batch = run(All, {"a": floats([1]), "b": floats([2])}, {"a": floats([3], [4]), "b": floats([5], [6])})
    assert batch.whole["y"].tolist() == [[3], [8], [10]]
    assert seen == {"rows": 3, "ids": ["", ""], "counts": [1, 2]}


def test_text_is_str_and_bytes_are_bytes():
    @shoal.model(inputs={"t": "str", "b": "bytes"}, outputs={"up": "str", "back": "bytes"})
    def shout(t, b):
        assert type(t[0]) is str and type(b[0]) is bytes
        return [s.upper() for s in t], b

    texts = np.array([["grün".encode()]], dtype=object)
    batch = run(shout, {"t": texts, "b": np.array([[b"\xff\x00"]], dtype=object)})
    assert batch.whole["up"].tolist() == [["GRÜN"]] and batch.whole["back"].tolist() == [[b"\xff\x00"]]


def test_bf16_is_float32_to_the_model():
    @shoal.model(inputs={"x": ("bfloat16", [2])}, outputs={"y": ("bfloat16", [2])})
    def half(x):
        assert x.dtype == np.float32
        return x / 2

    batch = run(half, {"x": np.array([[0x3F80, 0x4000]], np.uint16)})
    assert batch.whole["y"].tolist() == [[0.5, 1.0]]


def test_without_batching_predict_gets_the_bare_shape():
    @shoal.model(inputs={"x": ("float32", [2, 2])}, outputs={"y": ("float32", [2])}, max_batch=0)
    def columns(x):
        assert x.shape == (2, 2)
        return x.sum(axis=0)

    made = handler(columns)
    request = Request({"x": floats([1, 2], [3, 4])})
    made.execute(Batch(request))
    assert request.answers[0][0]["y"].tolist() == [4, 6]
    assert "dynamic_batching" not in made.describe()


def test_an_optional_input_may_be_absent():
    class Shift(shoal.Model):
        x = shoal.Input("float32", [1])
        by = shoal.Input("float32", [1], optional=True)
        y = shoal.Output("float32", [1])

        def predict(self, x, by):
            return x if by is None else x + by

    batch = run(Shift, {"x": floats([1])}, {"x": floats([1]), "by": floats([5])})
    assert [r.answers[0][0]["y"].tolist() for r in batch.requests] == [[[1]], [[6]]]


def wrong(returned: str, outputs: str = "{'y': ('float32', [2])}") -> str:
    """The error of a function that returns the given expression for a batch of two rows."""
    path = pathlib.Path(__file__).with_name("wrong_model.py")
    text = f"def predict(x):\n    def inner():\n        return 1\n    return {returned}\n"
    scope: dict = {"np": np}
    exec(compile(text, str(path), "exec"), scope)
    import linecache

    linecache.cache[str(path)] = (len(text), None, text.splitlines(True), str(path))
    batch = run(scope["predict"], {"x": floats([1, 2], [3, 4])}, inputs={"x": ("float32", [2])}, outputs=eval(outputs))
    assert batch.whole is None, f"got {batch.whole}, want an error"
    return batch.requests[0].error[0]


@pytest.mark.parametrize("returned, want", [
    ("x[:1]", "predict returned y with shape (1, 2), want (2, 2): one row for each of the batch's 2, each of shape [2]"),
    ("x.mean(axis=1)", "predict returned y with shape (2,), want (2, 2): one row for each of the batch's 2, each of shape [2]"),
    ("np.zeros((2, 2), complex)", "predict returned y with type complex128, want float32; convert it with .astype('float32') if that is meant"),
    ("None", "predict returned None, want y: is a return missing?"),
    ("{'z': x}", "predict returned a dict that misses y; the outputs are y"),
    ("{'y': x, 'z': x}", "predict returned a dict that has z, which is no output; the outputs are y"),
    ("[[1], [1, 2]]", "predict returned a list as y, which does not become an array:"),
    ("'text'", "predict returned y with type <U4, want float32"),
])  # fmt: skip
def test_a_wrong_return_is_told_with_shape_and_line(worker, returned, want):
    text = wrong(returned)
    assert want in text and text.startswith("model 'm': ") and text.endswith("(line 4 of wrong_model.py)")


def test_none_is_no_string(worker):
    text = wrong("['a', None]", "{'y': 'str'}")
    assert "predict returned a list as y, which does not become an array: it has None where a string is wanted (line 4" in text


def test_too_few_outputs_are_told(worker):
    two = "{'y': ('float32', [2]), 'z': 'float32'}"
    assert "predict returned an array, want 2 arrays: y, z" in wrong("x", two)
    assert "predict returned 3 values, want 2: y, z" in wrong("x, x, x", two)


def test_an_exception_is_told_with_its_line_and_logged(worker):
    def broken(x):
        raise KeyError("weights")

    batch = run(broken, {"x": floats([1])}, inputs={"x": ("float32", [1])}, outputs={"y": "float32"})
    line = broken.__code__.co_firstlineno + 1
    assert batch.requests[0].error == (f"model 'm': KeyError: 'weights' (line {line} of test_model.py, in broken)", "INTERNAL")
    assert "Traceback" in worker.lines[0][1]


def test_an_error_of_the_users_choice_keeps_its_text_and_code():
    def picky(x):
        raise shoal.Error("x must be positive")

    batch = run(picky, {"x": floats([1])}, inputs={"x": ("float32", [1])}, outputs={"y": "float32"})
    assert batch.requests[0].error == ("x must be positive", "INVALID_ARG")
    with pytest.raises(ValueError, match="code is 'NOPE'"):
        shoal.Error("x", "NOPE")


@pytest.mark.parametrize("make, want", [
    (lambda: handler(lambda a, b: a, inputs={"x": "float32"}, outputs={"y": "float32"}), "asks for a, b, but the inputs are x"),
    (lambda: handler(lambda x: x, inputs={"x": "float32"}), "declares no outputs"),
    (lambda: shoal.Input("float33"), "'float33' is not a type that tensors can have"),
    (lambda: shoal.Input("float32", [0]), "dimensions are 1 or more"),
    (lambda: handler(Mean, max_batch=3), "Mean declares its own max_batch; change it there"),
    (lambda: handler(3), "3 is no model"),
])  # fmt: skip
def test_a_wrong_declaration_is_refused(make, want):
    with pytest.raises((TypeError, ValueError), match=want):
        make()


def load(tmp_path, text: str):
    (tmp_path / "model.py").write_text("import shoal\n" + textwrap.dedent(text))
    return _load.load({"model_name": "m", "version": 1, "repository": str(tmp_path), "version_dir": str(tmp_path), "config": {}})


ONE = """
class {0}(shoal.Model):
    x = shoal.Input("float32")
    y = shoal.Output("float32")
    def predict(self, x):
        return x * {1}
"""


def test_a_file_with_one_model_is_served(tmp_path):
    made = load(tmp_path, ONE.format("Only", 2))
    made.start()
    batch = Batch(Request({"x": floats([3])}))
    made.execute(batch)
    assert batch.whole["y"].tolist() == [[6]]


def test_one_of_several_models_must_be_named(tmp_path):
    both = ONE.format("A", 2) + ONE.format("B", 3)
    with pytest.raises(TypeError, match=r"several models \(A, B\); .* model = A"):
        load(tmp_path, both)
    assert load(tmp_path, both + "model = B\n")._declared.label == "B"


def test_the_package_imports_nothing_before_it_is_used():
    import subprocess
    import sys

    code = "import shoal, sys; assert 'numpy' not in sys.modules; shoal.Input; print(sorted(shoal.__all__) == sorted(shoal._HOMES))"
    root = pathlib.Path(shoal.__file__).parents[1]
    got = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert got.stdout == "True\n", got.stderr
