"""Does what its input ACT says, so that one model shows every way of answering."""

import json
import sys

import numpy as np
import triton_python_backend_utils as pb_utils


class Odd(Exception):
    pass


class TritonPythonModel:
    def initialize(self, args):
        self.args = args

    def execute(self, requests):
        act = pb_utils.get_input_tensor_by_name(requests[0], "ACT").as_numpy()[0].decode()
        return getattr(self, act)(requests)

    def double(self, requests):
        return [self.answer(r) for r in requests]

    def answer(self, request, **more):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        y = pb_utils.Tensor("Y", x * np.float32(2))
        z = pb_utils.Tensor("Z", np.array(["äöü", b"\x00\x7f", 7, ""], dtype=np.object_))
        return pb_utils.InferenceResponse([y, z], **more)

    # Wrong answers of execute.

    def raises(self, requests):
        raise ValueError("the wine is corked")

    def raises_own(self, requests):
        raise Odd("first line\nsecond line")

    def raises_deep(self, requests):
        def inner():
            return {}["missing"]

        return inner()

    def raises_chained(self, requests):
        try:
            int("x")
        except ValueError as err:
            raise RuntimeError("outer") from err

    def raises_empty(self, requests):
        raise Odd

    def raises_model(self, requests):
        raise pb_utils.TritonModelException("no good")

    def returns_none(self, requests):
        return None

    def returns_list_of_none(self, requests):
        return [None for _ in requests]

    def returns_too_few(self, requests):
        return []

    def returns_too_many(self, requests):
        return [self.answer(requests[0]), self.answer(requests[0])]

    def returns_tuple(self, requests):
        return tuple(self.answer(r) for r in requests)

    def returns_text(self, requests):
        return "hello"

    def returns_list_of_text(self, requests):
        return ["hello" for _ in requests]

    # Errors of one request.

    def error(self, requests):
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("sorry")) for _ in requests]

    def error_with_outputs(self, requests):
        return [self.answer(r, error=pb_utils.TritonError("sorry, all the same")) for r in requests]

    def coded(self, code):
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("coded", code))]

    def error_unknown(self, requests):
        return self.coded(pb_utils.TritonError.UNKNOWN)

    def error_not_found(self, requests):
        return self.coded(pb_utils.TritonError.NOT_FOUND)

    def error_invalid_arg(self, requests):
        return self.coded(pb_utils.TritonError.INVALID_ARG)

    def error_unavailable(self, requests):
        return self.coded(pb_utils.TritonError.UNAVAILABLE)

    def error_unsupported(self, requests):
        return self.coded(pb_utils.TritonError.UNSUPPORTED)

    def error_already_exists(self, requests):
        return self.coded(pb_utils.TritonError.ALREADY_EXISTS)

    def error_cancelled(self, requests):
        return self.coded(pb_utils.TritonError.CANCELLED)

    # Outputs that do not fit.

    def output(self, *tensors):
        return [pb_utils.InferenceResponse(list(tensors))]

    def no_outputs(self, requests):
        return self.output()

    def unknown_output(self, requests):
        return self.output(pb_utils.Tensor("OTHER", np.zeros(2, np.float32)))

    def wrong_type(self, requests):
        return self.output(pb_utils.Tensor("Y", np.zeros(2, np.int64)))

    def wrong_rank(self, requests):
        return self.output(pb_utils.Tensor("Y", np.zeros((2, 2), np.float32)))

    def strided(self, requests):
        return self.output(pb_utils.Tensor("Y", np.arange(6, dtype=np.float32)[::2]))

    def empty_tensor(self, requests):
        return self.output(pb_utils.Tensor("Y", np.zeros(0, np.float32)))

    def empty_strings(self, requests):
        return self.output(pb_utils.Tensor("Z", np.array([], dtype=np.object_)))

    def fixed_strings(self, requests):
        return self.output(pb_utils.Tensor("Z", np.array([b"ab", b"c"])))

    def unicode_strings(self, requests):
        return self.output(pb_utils.Tensor("Z", np.array(["ab", "c"])))

    def complex_output(self, requests):
        return self.output(pb_utils.Tensor("Y", np.zeros(2, np.complex64)))

    def twice_same(self, requests):
        return self.output(pb_utils.Tensor("Y", np.zeros(1, np.float32)), pb_utils.Tensor("Y", np.ones(1, np.float32)))

    def nameless(self, requests):
        return self.output(pb_utils.Tensor("", np.zeros(1, np.float32)))

    def list_output(self, requests):
        return self.output(pb_utils.Tensor("Y", [1.0, 2.0]))

    def none_output(self, requests):
        return self.output(None)

    def keeps_input(self, requests):
        return self.output(pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(requests[0], "X").as_numpy()))

    # What a request and the module say.

    def tell(self, requests, said):
        text = json.dumps(said, default=str)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Z", np.array([text], dtype=np.object_))])]

    def tells_request(self, requests):
        (r,) = requests
        x = pb_utils.get_input_tensor_by_name(r, "X")
        return self.tell(requests, {
            "request_id": r.request_id(), "correlation_id": r.correlation_id(), "flags": r.flags(), "timeout": r.timeout(),
            "parameters": json.loads(r.parameters() or "{}"), "wanted": sorted(r.requested_output_names()),
            "names": [t.name() for t in r.inputs()], "cancelled": r.is_cancelled(), "cpu": x.is_cpu(),
            "shape": list(x.shape()), "numpy": str(x.as_numpy().dtype),
            "missing": pb_utils.get_input_tensor_by_name(r, "NOPE"),
        })

    def keeps(self, requests):
        self.kept = [*getattr(self, "kept", []), requests[0]]
        return self.tell(requests, {"ids": [r.request_id() for r in self.kept]})

    def tells_args(self, requests):
        args = dict(self.args)
        config = json.loads(args.pop("model_config"))
        return self.tell(requests, {"args": args, "config": config, "types": sorted({type(v).__name__ for v in self.args.values()})})

    def tells_argv(self, requests):
        return self.tell(requests, {"argv": sys.argv})

    def tells_dir(self, requests):
        return self.tell(requests, {"dir": pb_utils.get_model_dir()})

    def tells_response(self, requests):
        r = self.answer(requests[0], parameters={"a": 1, "b": "x", "c": True})
        e = pb_utils.InferenceResponse(error=pb_utils.TritonError("m", pb_utils.TritonError.NOT_FOUND))
        return self.tell(requests, {
            "parameters": r.parameters(), "has_error": [r.has_error(), e.has_error()], "none": r.error(),
            "message": e.error().message(), "code": str(e.error().code()),
            "names": [t.name() for t in r.output_tensors()], "got": pb_utils.get_output_tensor_by_name(r, "Y").name(),
        })

    def tells_dlpack(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], "X")
        there = np.from_dlpack(x).copy()
        back = pb_utils.Tensor.from_dlpack("Y", there)
        again = pb_utils.Tensor.from_dlpack("Y", x.to_dlpack())
        return self.tell(requests, {"there": there.tolist(), "back": back.as_numpy().tolist(), "again": again.as_numpy().tolist(),
                                    "device": list(x.__dlpack_device__())})

    def dlpack_strings(self, requests):
        pb_utils.get_input_tensor_by_name(requests[0], "ACT").to_dlpack()

    def dlpack_dropped(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], "X")
        raise self.reason(x.to_dlpack())

    def reason(self, capsule):
        raise KeyError("the capsule ends with this frame")

    def dlpack_strided(self, requests):
        pb_utils.Tensor.from_dlpack("Y", np.arange(12, dtype=np.float32).reshape(3, 4).T)

    def dlpack_nothing(self, requests):
        pb_utils.Tensor.from_dlpack("Y", 7)

    def response_parameters(self, requests):
        return [self.answer(r, parameters={"text": "x", "count": 3, "yes": True}) for r in requests]

    def bad_parameter_value(self, requests):
        return [self.answer(r, parameters={"list": []}) for r in requests]

    def bad_parameter_key(self, requests):
        return [self.answer(r, parameters={1: "a"}) for r in requests]

    def bad_parameters(self, requests):
        return [self.answer(r, parameters=[1]) for r in requests]

    # The response sender in a model that is not decoupled.

    def sender(self, requests):
        for r in requests:
            r.get_response_sender().send(self.answer(r), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def sender_then_final(self, requests):
        for r in requests:
            s = r.get_response_sender()
            s.send(self.answer(r))
            s.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def sender_twice(self, requests):
        s = requests[0].get_response_sender()
        s.send(self.answer(requests[0]))
        s.send(self.answer(requests[0]))

    def sender_nothing(self, requests):
        requests[0].get_response_sender().send()

    def sender_final_only(self, requests):
        requests[0].get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def sender_flags(self, requests):
        requests[0].get_response_sender().send(self.answer(requests[0]), flags=4)

    def sender_closed(self, requests):
        s = requests[0].get_response_sender()
        s.send(self.answer(requests[0]), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        s.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def sender_and_return(self, requests):
        r = requests[0]
        r.get_response_sender().send(self.answer(r), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return [self.answer(r)]

    def reschedule(self, requests):
        requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        return [None]

    def reschedule_and_return(self, requests):
        requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        return [self.answer(requests[0])]

    # Other things.

    def turned(self, requests):
        y, z = self.answer(requests[0]).output_tensors()
        return [pb_utils.InferenceResponse([z, y])]

    def odd_strings(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Z", np.array(["a", None, 1.5, True], dtype=np.object_))])]

    def logs(self, requests):
        log = pb_utils.Logger
        log.log("plain")
        log.log("as error", log.ERROR)
        log.log_info("an info")
        log.log_warn("a warning")
        log.log_error("an error")
        log.log_verbose("a detail")
        print("printed")
        return self.double(requests)

    def bls(self, requests):
        ask = pb_utils.InferenceRequest(model_name="other", requested_output_names=["Y"], inputs=[pb_utils.Tensor("X", np.zeros(1, np.float32))])
        return [ask.exec()]

    def bls_bad_correlation(self, requests):
        pb_utils.InferenceRequest(model_name="other", requested_output_names=[], inputs=[], correlation_id=1.5)

    def error_in_message(self, requests):
        pb_utils.TritonError(None)

    def bytes_round(self, requests):
        a = np.array([b"ab", "ü", 3], dtype=np.object_)
        s = pb_utils.serialize_byte_tensor(a)
        return self.tell(requests, {"type": type(s).__name__, "len": len(s), "back": [str(x) for x in pb_utils.deserialize_bytes_tensor(s)]})
