"""shoal.serve in a script, as a user would write it."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import traceback

import numpy as np
import pytest

import pymodels
from server import BINARY, get, wait_until

sys.path.insert(0, str(pymodels.PACKAGE))
os.environ.setdefault("SHOAL", str(BINARY))
import shoal  # noqa: E402


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def children(pid: int) -> list[int]:
    """The processes that any thread of the process has started."""
    return [int(n) for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children") for n in task.read_text().split()]


def test_a_closure_is_served_where_it_is():
    state = {"offset": 10}

    def shift(x):
        return x + state["offset"]

    with shoal.serve(shift, inputs={"x": ("float32", [2])}, outputs={"y": ("float32", [2])}) as server:
        assert server(x=[[1, 2], [3, 4]]).tolist() == [[11, 12], [13, 14]]
        state["offset"] = 20
        assert server(x=[[1, 2]]).tolist() == [[21, 22]]
        assert repr(server) == f"<shoal.Server of shift, running at {server.url}>"
        with pytest.raises(shoal.InferenceError, match="unexpected shape for input 'x'") as error:
            server(x=[[1, 2, 3]])
        assert error.value.status == 400
        pid = server._process.pid
    assert not alive(pid) and repr(server) == "<shoal.Server of shift, stopped>"


def test_a_class_with_text_scalars_and_two_outputs():
    class Count(shoal.Model):
        text = shoal.Input("str")
        upper = shoal.Output("str")
        size = shoal.Output("int64")

        def load(self):
            self.ready = True

        def predict(self, text):
            assert self.ready
            return {"upper": [t.upper() for t in text], "size": np.array([len(t) for t in text])}

    with shoal.serve(Count, name="counter", max_batch=None) as server:
        got = server.infer(text=["ab", "grün"])
        assert got["upper"].tolist() == ["AB", "GRÜN"] and got["size"].tolist() == [2, 4]
        assert server.client.get("/v2/models/counter")["name"] == "counter"
        assert "nv_inference_request_success" in get(server.metrics.split("/")[2], "/metrics").text


def test_bf16_and_no_batching():
    def half(x):
        return x / 2

    kinds = {"inputs": {"x": ("bfloat16", [3])}, "outputs": {"y": ("bfloat16", [3])}}
    with shoal.serve(half, **kinds, max_batch=0) as server:
        assert server(x=[1, 2, 5]).tolist() == [0.5, 1, 2.5]


def test_two_instances_run_side_by_side():
    import threading

    both = threading.Barrier(2, timeout=20)

    def meet(x):
        both.wait()
        return x

    with shoal.serve(meet, inputs={"x": "int32"}, outputs={"y": "int32"}, max_batch=1, instances=2) as server:
        got: list = []
        callers = [threading.Thread(target=lambda n=n: got.append(server(x=[n]).tolist())) for n in range(2)]
        for c in callers:
            c.start()
        for c in callers:
            c.join(30)
    assert sorted(got) == [[0], [1]]


def test_a_file_is_served_by_workers(tmp_path):
    (tmp_path / "pid.py").write_text(textwrap.dedent("""
        import os
        import numpy as np
        import shoal

        @shoal.model(inputs={"x": "int64"}, outputs={"pid": "int64"})
        def pid(x):
            return np.full(len(x), os.getpid())
    """))
    with shoal.serve(tmp_path / "pid.py") as server:
        assert server(x=np.array([[0]]))[0, 0] != os.getpid()


def test_lists_for_a_model_of_a_file_are_sent_in_its_type(tmp_path):
    (tmp_path / "half.py").write_text(
        "import shoal\n\n\n@shoal.model(inputs={'x': ('float32', [3])}, outputs={'y': ('float32', [3])})\ndef half(x):\n    return x / 2\n"
    )
    with shoal.serve(tmp_path / "half.py") as server:
        assert server(x=[[1, 2, 3]]).tolist() == [[0.5, 1, 1.5]]


def test_what_load_raises_is_raised_by_serve():
    class Broken(shoal.Model):
        x = shoal.Input("float32")
        y = shoal.Output("float32")

        def load(self):
            raise FileNotFoundError("weights.bin")

        def predict(self, x):
            return x

    with pytest.raises(shoal.ServeError, match="FileNotFoundError: weights.bin") as error:
        shoal.serve(Broken)
    assert isinstance(error.value.__cause__, FileNotFoundError)


def test_a_package_of_another_version_than_the_server_is_told(monkeypatch):
    monkeypatch.setattr("shoal._attach.__version__", "9.9.9")
    with pytest.raises(shoal.ServeError, match=r"the server is of version .* and this package of 9\.9\.9; install both"):
        shoal.serve(lambda x: x, inputs={"x": "int32"}, outputs={"y": "int32"})


def test_a_missing_binary_is_told(monkeypatch):
    monkeypatch.delenv("SHOAL")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(shoal.ServeError, match="put `shoal` on the PATH .*, or name it in the environment variable SHOAL"):
        shoal.serve(lambda x: x, inputs={"x": "int32"}, outputs={"y": "int32"})


def test_a_server_that_was_stopped_says_so():
    server = shoal.serve(lambda x: x, inputs={"x": "int32"}, outputs={"y": "int32"})
    server.stop()
    with pytest.raises(shoal.ServeError, match="the server of model has ended"):
        server(x=[1])


SCRIPT = """
import signal
import sys
sys.path.insert(0, {package!r})
import shoal

# A shell's background jobs ignore Ctrl-C, and so would what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

def same(x):
    return x

if __name__ == "__main__":
    server = shoal.serve(same, inputs={{"x": "float32"}}, outputs={{"y": "float32"}})
    try:
        print(server(x=[1.5])[0], server._process.pid, flush=True)
        {then}
    except KeyboardInterrupt:  # it came before wait did
        server.stop()
"""


def script(tmp_path, then: str) -> tuple[subprocess.Popen, int]:
    (tmp_path / "script.py").write_text(SCRIPT.format(package=str(pymodels.PACKAGE), then=then))
    process = subprocess.Popen([sys.executable, str(tmp_path / "script.py")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    value, pid = process.stdout.readline().split()
    assert value == "1.5"
    return process, int(pid)


def test_the_server_ends_with_a_script_that_forgets_it(tmp_path):
    process, pid = script(tmp_path, "pass")
    assert process.wait(20) == 0
    assert not alive(pid)
    process.stdout.close()


def test_the_server_ends_with_a_script_that_is_killed(tmp_path):
    process, pid = script(tmp_path, "server.wait()")
    relays = children(pid)
    assert len(relays) == 1, f"the server has children {relays}, want one relay"
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    wait_until(lambda: not alive(pid) and not alive(relays[0]), 20, "the server and its relay to end")
    process.stdout.close()


def test_wait_ends_with_ctrl_c(tmp_path):
    process, pid = script(tmp_path, "server.wait()")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert not alive(pid)
    process.stdout.close()


def test_an_exception_is_shown_as_python_shows_it(capfd):
    def inner(x):
        raise KeyError("no such label")

    def broken(x):
        return inner(x)

    with shoal.serve(broken, inputs={"x": ("float32", [2])}, outputs={"y": "float32"}) as server:
        for _ in range(3):
            with pytest.raises(shoal.InferenceError, match="KeyError: 'no such label' .line"):
                server(x=[[1, 2]])
    shown = capfd.readouterr().err
    assert shown.count("Traceback") == 1 and "_model.py" not in shown and "in inner\n" in shown, shown
    assert "KeyError: 'no such label' (and 2 times more" in shown, shown


def test_a_model_that_does_not_load_raises_with_the_user_s_calls_only():
    class Broken(shoal.Model):
        x = shoal.Input("float32", [2])
        y = shoal.Output("float32")

        def load(self):
            raise RuntimeError("no weights")

        def predict(self, x):
            return x

    with pytest.raises(shoal.ServeError, match="model 'broken' was not loaded: RuntimeError: no weights") as raised:
        shoal.serve(Broken)
    cause = raised.value.__cause__
    assert cause is not None and [f.name for f in traceback.extract_tb(cause.__traceback__)] == ["load"]
