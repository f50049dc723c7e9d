"""Triton's Python contract, with the model that the end-to-end tests also run and recorded answers of a real server."""

from __future__ import annotations

import gc
import json
import pathlib
import re
import sys
import textwrap
import threading

import numpy as np
import pytest
from fakes import Batch, Request

from shoal import _load

ACTS = pathlib.Path(__file__).resolve().parents[1] / "e2e" / "testdata" / "python" / "acts"
RECORDED = json.loads((ACTS / "recorded.json").read_text())


def init(folder: pathlib.Path, **more) -> dict:
    return {"model_name": "acts", "version": 1, "repository": str(folder), "version_dir": str(folder / "1"),
            "instance_name": "acts_0_0", "instance_kind": "KIND_CPU", "device_id": 0, "config": {"name": "acts"}, **more}  # fmt: skip


@pytest.fixture
def acts(worker):
    handler = _load.load(init(ACTS))
    handler.start()
    return handler


def ask(handler, act: str, **more) -> Request:
    request = Request({"ACT": np.array([act.encode()], dtype=object), "X": np.array([1, 2, 3], np.float32)}, **more)
    handler.execute(Batch(request))
    gc.collect()
    return request


def _placeless(text: str) -> str:
    return re.sub(r"@FILE@\(\d+\)", "@FILE@(@LINE@)", text.replace(str(ACTS / "1" / "model.py"), "@FILE@"))


def test_an_exception_is_told_with_its_lines(acts):
    file = ACTS / "1" / "model.py"
    lines = file.read_text().splitlines()
    raised, called = (1 + next(i for i, line in enumerate(lines) if part in line) for part in ("is corked", "getattr(self, act)"))
    assert ask(acts, "raises").error[0].endswith(f"\n\nAt:\n  {file}({raised}): raises\n  {file}({called}): execute\n")


@pytest.mark.parametrize("act", sorted(a for a in RECORDED if "error" in RECORDED[a]))
def test_a_failing_act_has_the_text_that_a_real_server_gives(acts, act):
    request = ask(acts, act)
    assert request.error is not None, f"{act}: got {request.answers}, want an error"
    assert _placeless(request.error[0]) == RECORDED[act]["error"]


@pytest.mark.parametrize("act", sorted(a for a in RECORDED if "outputs" in RECORDED[a]))
def test_an_act_that_answers_gives_what_a_real_server_gives(acts, act):
    request = ask(acts, act)
    assert request.error is None
    outputs, _, types = request.answers[0]
    got = [{"name": n, "datatype": types[n], "shape": list(a.shape)} for n, a in outputs.items()]
    want = [{k: o[k] for k in ("name", "datatype", "shape")} for o in RECORDED[act]["outputs"]]
    assert got == want


@pytest.mark.parametrize("act", ["returns_none", "returns_list_of_none"])
def test_a_request_that_execute_leaves_out_is_told_so(acts, act):
    assert "gave no response for this request" in ask(acts, act).error[0]


@pytest.mark.parametrize("code", "unknown not_found invalid_arg unavailable unsupported already_exists cancelled".split())
def test_error_codes_reach_the_client(acts, code):
    assert ask(acts, "error_" + code).error == ("coded", code.upper())


def test_the_response_sender_answers_a_model_that_is_not_decoupled(acts):
    for act in ("sender", "sender_then_final"):
        request = ask(acts, act)
        assert request.error is None and len(request.answers) == 1


def test_the_response_sender_refuses_a_second_response(acts, worker):
    for act in ("sender_twice", "sender_closed", "sender_and_return"):
        request = ask(acts, act)
        assert len(request.answers) == 1 and request.error is None
        assert "Unable to send response." in worker.lines[-1][1]


def test_rescheduling_and_calling_other_models_are_refused_in_words(acts):
    assert "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE is not served yet" in ask(acts, "reschedule").error[0]
    assert "BLS is only supported during the 'execute' function." in ask(acts, "bls").error[0]  # there is no server here


def test_response_parameters_are_checked_and_sent(acts):
    assert ask(acts, "response_parameters").answers[0][1] == {"text": "x", "count": 3, "yes": True}
    assert "Expect parameters values to have type bool/int/str, found type <class 'list'>" in ask(acts, "bad_parameter_value").error[0]
    assert "Expect parameters keys to have type str, found type <class 'int'>" in ask(acts, "bad_parameter_key").error[0]
    assert "Expect a dict" in ask(acts, "bad_parameters").error[0]


def test_outputs_that_nobody_asked_for_are_not_sent(acts):
    assert list(ask(acts, "double", wanted=["Z"]).answers[0][0]) == ["Z"]


def test_what_a_request_tells(acts):
    request = ask(acts, "tells_request", id="r1", parameters={"p": "v", "n": 3})
    said = json.loads(request.answers[0][0]["Z"][0])
    assert said == {
        "request_id": "r1", "correlation_id": 0, "flags": 0, "timeout": 0, "parameters": {"p": "v", "n": 3}, "wanted": ["Y", "Z"],
        "names": ["ACT", "X"], "cancelled": False, "cpu": True, "shape": [3], "numpy": "float32", "missing": None,
    }  # fmt: skip


def test_initialize_gets_what_triton_gives(acts):
    said = json.loads(ask(acts, "tells_args").answers[0][0]["Z"][0])
    assert said["args"] == {
        "model_instance_kind": "CPU", "model_instance_name": "acts_0_0", "model_instance_device_id": "0",
        "model_repository": str(ACTS), "model_version": "1", "model_name": "acts",
    }  # fmt: skip
    assert said["types"] == ["str"]
    assert json.loads(ask(acts, "tells_dir").answers[0][0]["Z"][0]) == {"dir": str(ACTS / "1")}


def test_dlpack_there_and_back(acts):
    said = json.loads(ask(acts, "tells_dlpack").answers[0][0]["Z"][0])
    assert said == {"there": [1, 2, 3], "back": [1, 2, 3], "again": [1, 2, 3], "device": [1, 0]}


def test_the_log_has_the_levels(acts, worker):
    ask(acts, "logs")
    assert worker.lines == [("info", "plain"), ("error", "as error"), ("info", "an info"), ("warn", "a warning"),
                            ("error", "an error"), ("verbose", "a detail")]  # fmt: skip


def test_an_exception_puts_its_traceback_into_the_log(acts, worker):
    ask(acts, "raises_chained")
    level, text = worker.lines[-1]
    assert level == "error" and "Traceback" in text and "ValueError: invalid literal" in text and "RuntimeError: outer" in text


def written(tmp_path, text: str, **more):
    (tmp_path / "1").mkdir(exist_ok=True)
    (tmp_path / "1" / "model.py").write_text("import triton_python_backend_utils as pb_utils\n" + textwrap.dedent(text))
    return _load.load(init(tmp_path, **more))


def test_async_execute_is_awaited(worker, tmp_path):
    handler = written(tmp_path, """
        import asyncio
        class TritonPythonModel:
            async def execute(self, requests):
                await asyncio.sleep(0)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())]) for r in requests]
    """)
    handler.start()
    request = Request({"X": np.ones(2, np.float32)})
    handler.execute(Batch(request))
    handler.close()
    assert request.answers[0][0]["Y"].tolist() == [1, 1]


def test_a_thread_may_answer_after_execute_returned(worker, tmp_path):
    handler = written(tmp_path, """
        import threading
        go = threading.Event()
        class TritonPythonModel:
            def execute(self, requests):
                for r in requests:
                    threading.Thread(target=self.later, args=(r.get_response_sender(),)).start()
            def later(self, sender):
                go.wait(10)
                sender.send(pb_utils.InferenceResponse([]), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """)
    handler.start()
    request = Request({})
    run = threading.Thread(target=handler.execute, args=(Batch(request),))
    run.start()
    run.join(0.05)
    assert run.is_alive(), "execute returned before the request was answered"
    handler._class.execute.__globals__["go"].set()
    run.join(10)
    assert len(request.answers) == 1 and request.error is None


@pytest.mark.parametrize("keeps", ["requests", "[r.get_response_sender() for r in requests]"])
def test_a_request_that_is_kept_but_never_answered_ends_with_its_client(worker, tmp_path, keeps):
    handler = written(tmp_path, f"""
        class TritonPythonModel:
            def execute(self, requests):
                self.kept = {keeps}
    """)
    handler.start()
    request = Request({})
    run = threading.Thread(target=handler.execute, args=(Batch(request),), daemon=True)
    run.start()
    run.join(0.05)
    assert run.is_alive(), "execute did not wait for the model's answer"
    request.gone = True
    run.join(10)
    assert not run.is_alive(), "execute still waits, though nobody wants an answer"
    assert request.error == ("the client has gone", "CANCELLED")


def test_a_response_that_cannot_be_sent_leaves_the_request_unanswered(worker, tmp_path):
    handler = written(tmp_path, """
        class TritonPythonModel:
            def execute(self, requests):
                requests[0].get_response_sender().send("no response", pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """)
    handler.start()
    request = Request({})
    handler.execute(Batch(request))
    assert "TypeError: send wants a pb_utils.InferenceResponse, got str" in request.error[0]


@pytest.mark.parametrize("body, want", [
    ("raise ValueError('bad')", "message: ValueError: bad\n\nAt:\n  @FILE@(6): execute\n"),
    ("exec('def (')", "message: SyntaxError: invalid syntax (<string>, line 1)\n\nAt:\n  @FILE@(6): execute\n"),
])  # fmt: skip
def test_an_exception_in_a_coroutine_is_told_with_the_models_lines_alone(worker, tmp_path, body, want):
    handler = written(tmp_path, f"""
        import asyncio
        class TritonPythonModel:
            async def execute(self, requests):
                {body}
    """)
    handler.start()
    request = Request({})
    handler.execute(Batch(request))
    handler.close()
    assert request.error[0].endswith(want.replace("@FILE@", str(tmp_path / "1" / "model.py")))


def test_a_model_without_execute_fails_its_requests_in_words(worker, tmp_path):
    handler = written(tmp_path, "class TritonPythonModel: pass")
    handler.start()
    request = Request({})
    handler.execute(Batch(request))
    file = tmp_path / "1" / "model.py"
    assert request.error[0].endswith(f", message: Python model {file} does not implement `execute` method.")


def test_parameters_and_configuration_are_written_as_the_server_writes_them(worker, tmp_path):
    handler = written(tmp_path, """
        class TritonPythonModel:
            def initialize(self, args):
                self.config = args["model_config"]
            def execute(self, requests):
                raise ValueError(requests[0].parameters() + self.config)
    """, config={"name": "acts", "max_batch_size": 0})  # fmt: skip
    handler.start()
    request = Request({}, parameters={"a": 1, "b": "\u00e9"})
    handler.execute(Batch(request))
    assert '{"a":1,"b":"\u00e9"}{"name":"acts","max_batch_size":0}' in request.error[0]


DECOUPLED = {"config": {"name": "acts", "model_transaction_policy": {"decoupled": True}}}


def test_a_decoupled_model_sends_any_number_of_responses(worker, tmp_path):
    handler = written(tmp_path, """
        class TritonPythonModel:
            def execute(self, requests):
                for r in requests:
                    s = r.get_response_sender()
                    for i in range(int(r.inputs()[0].as_numpy()[0])):
                        s.send(pb_utils.InferenceResponse([]))
                    s.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """, **DECOUPLED)  # fmt: skip
    handler.start()
    requests = [Request({"IN": np.array([n], np.int32)}) for n in (0, 1, 5)]
    handler.execute(Batch(*requests))
    assert [len(r.answers) for r in requests] == [0, 1, 5]
    assert all(r.finished and r.error is None for r in requests)


@pytest.mark.parametrize("body, want", [
    ("return []", "is using the decoupled mode and the execute function must return None."),
    ("raise ValueError('late')", "message: ValueError: late"),
    ("pass", "without sending TRITONSERVER_RESPONSE_COMPLETE_FINAL"),
])  # fmt: skip
@pytest.mark.parametrize("how", ["def", "async def"])
def test_a_decoupled_request_always_ends(worker, tmp_path, body, want, how):
    handler = written(tmp_path, f"""
        class TritonPythonModel:
            {how} execute(self, requests):
                {body}
    """, **DECOUPLED)  # fmt: skip
    handler.start()
    request = Request({})
    ended = threading.Event()
    finish = request.finish
    request.finish = lambda: (finish(), ended.set())
    handler.execute(Batch(request))
    gc.collect()
    assert ended.wait(10), "the request did not end"
    assert want in request.error[0] and request.finished


def test_cancellation_is_seen_by_request_and_sender(worker, tmp_path):
    handler = written(tmp_path, """
        class TritonPythonModel:
            def execute(self, requests):
                (r,) = requests
                assert r.is_cancelled() and r.get_response_sender().is_cancelled()
                assert str(pb_utils.TritonError("gone", pb_utils.TritonError.CANCELLED).code()) == "__ErrorCode.CANCELLED"
                return [pb_utils.InferenceResponse(error=pb_utils.TritonError("gone", pb_utils.TritonError.CANCELLED))]
    """)
    handler.start()
    request = Request({})
    request.gone = True
    handler.execute(Batch(request))
    assert request.error == ("gone", "CANCELLED")


def test_auto_complete_config(worker, tmp_path):
    handler = written(tmp_path, """
        class TritonPythonModel:
            @staticmethod
            def auto_complete_config(c):
                assert c.as_dict()["input"] == []
                c.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1], "optional": True})
                c.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]})
                c.set_max_batch_size(8)
                c.set_dynamic_batching()
                c.set_model_transaction_policy({"decoupled": False})
                return c
    """)
    assert handler.describe() == {
        "name": "acts", "max_batch_size": 8, "dynamic_batching": {}, "model_transaction_policy": {"decoupled": False},
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1], "optional": True}],
        "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}],
    }  # fmt: skip


def test_auto_complete_config_leaves_the_instances_alone(worker, tmp_path):
    handler = written(tmp_path, """
        class TritonPythonModel:
            @staticmethod
            def auto_complete_config(c):
                c.as_dict()["instance_group"] = [{"count": 2}]
                return c
    """)
    assert "instance_group" not in handler.describe()


@pytest.mark.parametrize("body", ["pass", "return 3"])
def test_auto_complete_config_has_to_return_the_configuration(worker, tmp_path, body):
    from shoal import _faults

    handler = written(tmp_path, f"""
        class TritonPythonModel:
            @staticmethod
            def auto_complete_config(c):
                {body}
    """)
    with pytest.raises(BaseException) as error:
        handler.describe()
    want = "auto_complete_config function in model 'acts' must return a valid pb.ModelConfig object."
    assert _faults.describe(error.value) == want


CONFIG = {"name": "m", "max_batch_size": 4, "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [1], "optional": False}],
          "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}]}  # fmt: skip


@pytest.mark.parametrize("act, want", [
    ("c.set_max_batch_size(2)", "configuration specified max_batch_size 4, but in auto-complete-config function for model 'm' specified max_batch_size 2"),
    ("c.add_input({'name': 'X', 'data_type': 'TYPE_INT32', 'dims': [1]})", "unable to load model 'm', configuration expects datatype TYPE_FP32 for input 'X', model provides TYPE_INT32"),
    ("c.add_input({'name': 'X', 'data_type': 'TYPE_FP32', 'dims': [2]})", "model 'm', tensor 'X': the model expects dims [2] but the model configuration specifies dims [1]"),
    ("c.add_input({'name': 'X', 'data_type': 'TYPE_FP32', 'dims': [1], 'optional': True})", "model 'm', tensor 'X': the model expects optional True but the model configuration specifies optional False"),
    ("c.add_output({'name': 'Y', 'data_type': 'TYPE_FP32', 'dims': [1], 'optional': True})", "output 'Y' in auto-complete-config function for model 'm' contains property other than 'name', 'data_type' and 'dims'."),
    ("c.add_input({'data_type': 'TYPE_FP32', 'dims': [1]})", "input in auto-complete-config function for model 'm' is missing 'name' property."),
    ("c.add_input({'name': 'Q', 'dims': [1]})", "input 'Q' in auto-complete-config function for model 'm' is missing 'data_type' property."),
    ("c.set_model_transaction_policy({'x': 1})", "model transaction property in auto-complete-config function for model 'm' contains property other than 'decoupled'."),
])  # fmt: skip
def test_what_contradicts_the_configuration_is_refused(act, want):
    from shoal._pb_config import ModelConfig

    with pytest.raises(ValueError) as error:
        exec(act, {"c": ModelConfig(json.dumps(CONFIG))})
    assert str(error.value) == want


@pytest.mark.parametrize("text, want", [
    ("import not_there", "ModuleNotFoundError: No module named 'not_there'\n\nAt:\n  @FILE@(2): <module>\n"),
    ("def x(:", "SyntaxError: invalid syntax (model.py, line 2)"),
    ("class Other: pass", "has no model: expected a class TritonPythonModel"),
])  # fmt: skip
def test_a_file_that_does_not_load_is_told_with_its_line(tmp_path, text, want):
    from shoal import _faults

    with pytest.raises(BaseException) as error:
        written(tmp_path, text)
    assert want.replace("@FILE@", str(tmp_path / "1" / "model.py")) in _faults.describe(error.value)


def test_a_missing_numpy_is_told_without_the_calls_that_led_to_it():
    from shoal import _worker

    told = _worker._told(ModuleNotFoundError("No module named 'numpy'", name="numpy"))
    assert "-m pip install numpy" in told["error"] and "traceback" not in told


def test_files_beside_the_model_are_imported(worker, tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "beside_the_model.py").write_text("VALUE = 5\n")
    handler = written(tmp_path, """
        import beside_the_model
        from . import beside_the_model as same
        from .beside_the_model import VALUE
        class TritonPythonModel:
            value = (VALUE, beside_the_model.VALUE)
    """)
    assert handler._class.value == (5, 5)


def test_metrics_go_to_the_server(worker):
    import triton_python_backend_utils as pb_utils

    family = pb_utils.MetricFamily(name="seen", description="How many", kind=pb_utils.MetricFamily.COUNTER)
    family.Metric(labels={"a": "b"}).increment(2)
    assert worker.metrics == [("family", "seen", "counter", "How many", {}, None, 0.0),
                              ("declare", "seen", "counter", "How many", {"a": "b"}, None, 0.0),
                              ("increment", "seen", "counter", "How many", {"a": "b"}, None, 2.0)]  # fmt: skip
    with pytest.raises(pb_utils.TritonModelException, match="Missing required buckets"):
        pb_utils.MetricFamily(name="h", description="", kind=pb_utils.MetricFamily.HISTOGRAM).Metric()
    with pytest.raises(pb_utils.TritonModelException, match="Unexpected buckets"):
        family.Metric(buckets=[1.0])


def test_a_family_takes_its_metrics_along(worker):
    import triton_python_backend_utils as pb_utils

    family = pb_utils.MetricFamily(name="seen", description="How many", kind=pb_utils.MetricFamily.COUNTER)
    for _ in range(2):
        metric = family.Metric(labels={"a": "b"})
    del family
    gc.collect()
    assert [m[0] for m in worker.metrics] == ["family", "declare"], "a metric is declared once"
    assert worker.gone == [("forget", "seen", "counter", {"a": "b"}), ("leave", "seen", "counter", {})]
    with pytest.raises(pb_utils.TritonModelException, match="Failed to get metric value: .* 'MetricFamily' has been deleted"):
        metric.value()


@pytest.mark.parametrize("kind, act, want", [
    ("COUNTER", "set", "Failed to set metric value: TRITONSERVER_METRIC_KIND_COUNTER does not support Set"),
    ("GAUGE", "observe", "Failed to observe metric value: TRITONSERVER_METRIC_KIND_GAUGE does not support Observe"),
])  # fmt: skip
def test_what_a_metrics_kind_does_not_take_is_refused(worker, kind, act, want):
    import triton_python_backend_utils as pb_utils

    family = pb_utils.MetricFamily(name="seen", description="", kind=getattr(pb_utils.MetricFamily, kind))
    with pytest.raises(pb_utils.TritonModelException) as error:
        getattr(family.Metric(), act)(1)
    assert str(error.value) == want


def test_bf16_goes_through_dlpack_only():
    import triton_python_backend_utils as pb_utils

    tensor = pb_utils.Tensor._of("X", np.array([0x3F80, 0x4000], np.uint16), "BF16")
    with pytest.raises(pb_utils.TritonModelException, match="Tensor dtype is BF16 and cannot be converted to NumPy"):
        tensor.as_numpy()
    back = pb_utils.Tensor.from_dlpack("Y", tensor.to_dlpack())
    assert back.triton_dtype().name == "BF16" and back._array.tolist() == [0x3F80, 0x4000]


@pytest.mark.parametrize("dtype", "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64".split())
def test_dlpack_has_all_types_of_numpy_and_frees_them(dtype):
    import triton_python_backend_utils as pb_utils

    array = np.array([[0, 1, 1]], dtype)
    held = sys.getrefcount(array)
    back = np.from_dlpack(pb_utils.Tensor("X", array))
    assert back.dtype == array.dtype and back.tolist() == array.tolist()
    taken = pb_utils.Tensor.from_dlpack("Y", pb_utils.Tensor("X", array).to_dlpack()).as_numpy()
    assert taken.dtype == array.dtype and taken.tolist() == array.tolist()
    del back, taken
    pb_utils.Tensor("X", array).to_dlpack()  # a capsule that nobody takes
    gc.collect()
    assert sys.getrefcount(array) == held


def test_type_tables():
    import triton_python_backend_utils as pb_utils

    for number, kind in ((1, np.bool_), (10, np.float16), (13, np.object_)):
        assert pb_utils.triton_to_numpy_type(number) is kind
        assert pb_utils.numpy_to_triton_type(kind) == number
    assert pb_utils.triton_string_to_numpy("TYPE_STRING") is np.object_
    assert pb_utils.triton_string_to_numpy("TYPE_BOOL") is bool
    assert pb_utils.numpy_to_triton_type(np.bytes_) == 13
    assert pb_utils.triton_to_numpy_type(99) is None
