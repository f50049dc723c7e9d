"""Python models that call other models (BLS), with the official clients: what the real tritonserver answers, ours answers.

The tests marked peer run against the server that test_ensemble.py describes.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal

import numpy as np
import pytest
import tritonclient.http

import clients
import faults
import pipelines
import pymodels
from server import get, wait_until

ROW = np.array([[1, 2, 3, 4]], np.float32)


@pytest.fixture(scope="module")
def address(request, tmp_path_factory):
    given = request.config.getoption("--target-http")
    if given:
        yield given
        return
    repository = pipelines.write(tmp_path_factory.mktemp("repository"))
    with pymodels.serve(repository, "--model-control-mode=explicit", "--load-model=*") as server:
        server.wait_ready()
        yield server.http
        assert server.process.poll() is None, f"the server died:\n{server.log}"


def act(address: str, act: str, x: np.ndarray = ROW, **parameters):
    """What the model bls answers: Y and TEXT."""
    with tritonclient.http.InferenceServerClient(address) as client:
        inputs = [clients.tensor(tritonclient.http, "X", "FP32", x)]
        got = client.infer("bls", inputs, parameters={"act": act, **parameters})
        return got.as_numpy("Y"), got.as_numpy("TEXT")[0, 0].decode()


@pytest.mark.peer
@pytest.mark.parametrize(
    "name, want", [("sync", 2 * ROW), ("chain", 6 * ROW), ("ensemble", 6 * ROW + 3)]
)
def test_a_model_calls_others(address, name, want):
    np.testing.assert_array_equal(act(address, name)[0], want)


@pytest.mark.peer
def test_a_model_iterates_over_the_responses_of_another(address):
    x = np.array([[3, 9, 1, 2]], np.float32)
    np.testing.assert_array_equal(act(address, "many", x)[0], 3 * x + 3)


def gather(address: str, x: np.ndarray) -> np.ndarray:
    with tritonclient.http.InferenceServerClient(address) as client:
        return client.infer("gather", [clients.tensor(tritonclient.http, "X", "FP32", x)]).as_numpy("Y")


@pytest.mark.peer
def test_a_coroutine_calls_several_at_once(address):
    np.testing.assert_array_equal(gather(address, ROW), 20 * ROW)


@pytest.mark.peer
def test_the_responses_of_an_iterator(address):
    assert act(address, "many", np.array([[3, 9, 1, 2]], np.float32))[1] == "1 1 1 0"
    assert act(address, "one_by_decoupled")[1] == "1"


@pytest.mark.peer
def test_a_called_model_is_told_what_the_caller_says(address):
    words = act(address, "tell")[1].split(" ", 3)
    assert words[:3] == ["inner", "9", "1"] and json.loads(words[3]) == {"k": "v", "n": 3}


@pytest.mark.peer
@pytest.mark.parametrize(
    "name, more, want",
    [
        ("error", {"model": "echo"}, "True 1 Failed to process the request(s) for model 'echo_0_0', message: ValueError: a negative number"),
        (
            "error",
            {"model": "double"},
            "True 1 Model double - Error when running inference: [request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'double'. Expected [-1,4], got [1,2]. ",
        ),
        ("missing", {"model": "nobody"}, "True 1 Model nobody - Error when running inference: Failed for execute the inference request. Model 'nobody' is not ready."),
        ("missing", {"model": "double", "version": 7}, "True 1 Model double - Error when running inference: Failed for execute the inference request. Model 'double' is not ready."),
        (
            "missing",
            {"model": "many"},
            "True 1 Model many - Error when running inference: Model many is using the decoupled. The current BLS request call doesn't support models using the decoupled "
            "transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models.'",
        ),
        ("output", {}, "True 1 Model double - Error when running inference: unexpected inference output 'NOPE' for model 'double'"),
        ("early", {}, "BLS is only supported during the 'execute' function."),
        ("ready", {}, "True True False False"),
        ("reload", {}, "False True"),
    ],
)
def test_what_a_call_tells(address, name, more, want):
    assert act(address, name, **more)[1].startswith(want)


def test_an_error_among_the_responses(address):
    """The real server of release 24.10 does not come back from this one."""
    got = act(address, "many_error", np.array([[3, 1, 1, 2]], np.float32))[1]
    assert got.endswith("no more")


def test_a_model_that_calls_itself_is_told_so(address):
    """With one instance the real server waits for ever."""
    text = act(address, "self")[1]
    assert "the call of model 'bls' would wait for itself: bls -> bls" in text and "add instances" in text


@pytest.mark.peer
def test_outputs_that_a_model_keeps_stay_as_they_are(address):
    assert act(address, "keep")[1] == "True True "


@pytest.mark.peer
def test_other_threads_call_too(address):
    np.testing.assert_array_equal(act(address, "threads")[0], 40 * ROW)


def test_the_end_of_a_worker_ends_its_call(serve, tmp_path):
    """The worker of the model that calls is killed while another model runs for it."""
    repository = pipelines.write(tmp_path / "repository")
    pymodels.write(repository, "stuck", STUCK, "max_batch_size: 1\ninput { name: \"X\" data_type: TYPE_FP32 dims: [ 4 ] }\noutput { name: \"Y\" data_type: TYPE_FP32 dims: [ 4 ] }")
    pymodels.write(repository, "caller", CALLER, "max_batch_size: 1\ninput { name: \"X\" data_type: TYPE_FP32 dims: [ 4 ] }\noutput { name: \"Y\" data_type: TYPE_FP32 dims: [ 4 ] }")
    entered, leave = tmp_path / "entered", tmp_path / "leave"
    server = serve("--model-repository", repository, pymodels.PYTHON, "--model-control-mode=explicit", "--load-model=stuck", "--load-model=caller", env={"ENTERED": str(entered), "LEAVE": str(leave)})
    server.wait_ready()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        def ask():
            with tritonclient.http.InferenceServerClient(server.http) as client:
                return client.infer("caller", [clients.tensor(tritonclient.http, "X", "FP32", ROW)]).as_numpy("Y")

        answer = pool.submit(ask)
        wait_until(entered.exists, 20, "the call")
        os.kill(faults.worker(server.process.pid, "caller"), signal.SIGKILL)
        leave.touch()
        with pytest.raises(Exception, match="caller.*killed by signal 9"):
            answer.result(20)
        wait_until(lambda: _right(pool.submit(ask)), 20, "a worker in place of the killed one")


def _right(answer) -> bool:
    try:
        return (answer.result(20) == 2 * ROW).all()
    except Exception as e:
        assert "caller" in str(e), e
        return False


STUCK = """
    import os
    import time

    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            open(os.environ["ENTERED"], "w").close()
            while not os.path.exists(os.environ["LEAVE"]):
                time.sleep(0.01)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * r.inputs()[0].as_numpy())]) for r in requests]
"""
CALLER = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            asked = pb_utils.InferenceRequest(model_name="stuck", requested_output_names=["Y"], inputs=requests[0].inputs()).exec()
            return [pb_utils.InferenceResponse(asked.output_tensors())]
"""


@pytest.mark.peer
def test_many_callers(address):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for i, y in enumerate(pool.map(lambda i: gather(address, ROW + i), range(40))):
            np.testing.assert_array_equal(y, 20 * (ROW + i))
    stats = json.loads(get(address, "/v2/models/double/stats").body)["model_stats"][0]
    assert stats["inference_stats"]["success"]["count"] >= 160


def test_the_ten_line_form(tmp_path):
    repository = pipelines.write(tmp_path / "repository")
    (repository / "tens" / "1").mkdir(parents=True)
    (repository / "tens" / "1" / "model.py").write_text(
        """
import asyncio

import shoal


class Tens(shoal.Model):
    x = shoal.Input("float32", [4])
    y = shoal.Output("float32", [4])

    def predict(self, x):
        if (x == 7).any():
            return asyncio.run(self.both(x))
        if (x == 13).any():
            return shoal.call("echo", INPUT0=-x)["OUTPUT0"]
        return shoal.call("double", INPUT0=x) + shoal.call("echo", INPUT0=x)["OUTPUT0"]

    async def both(self, x):
        two, told = await asyncio.gather(shoal.acall("double", INPUT0=x), shoal.acall("echo", INPUT0=x))
        try:
            await shoal.acall("echo", INPUT0=-x)
        except shoal.Error as error:
            assert "a negative number" in str(error), error
            return two + told["OUTPUT0"]
"""
    )
    with pymodels.serve(repository, "--model-control-mode=explicit", "--load-model=tens", "--load-model=double", "--load-model=echo") as server:
        server.wait_ready()
        with tritonclient.http.InferenceServerClient(server.http) as client:
            got = client.infer("tens", [clients.tensor(tritonclient.http, "x", "FP32", ROW)])
            np.testing.assert_array_equal(got.as_numpy("y"), 3 * ROW + 1)
            got = client.infer("tens", [clients.tensor(tritonclient.http, "x", "FP32", ROW + 6)])
            np.testing.assert_array_equal(got.as_numpy("y"), 3 * (ROW + 6) + 1)
            with pytest.raises(Exception, match="a negative number"):
                client.infer("tens", [clients.tensor(tritonclient.http, "x", "FP32", 13 + 0 * ROW)])
            os.kill(faults.worker(server.process.pid, "echo"), signal.SIGKILL)
            wait_until(lambda: answers(client), 20, "a worker in place of the killed one")


def answers(client) -> bool:
    try:
        client.infer("tens", [clients.tensor(tritonclient.http, "x", "FP32", ROW)])
        return True
    except Exception as e:
        assert "echo" in str(e), e
        return False
