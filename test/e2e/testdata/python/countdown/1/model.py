"""Answers N times; HOW says by which of the ways that a decoupled model has."""

import threading

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def initialize(self, args):
        self.threads = []
        self.cancelled = 0

    def execute(self, requests):
        for request in requests:
            how = pb_utils.get_input_tensor_by_name(request, "HOW")
            getattr(self, how.as_numpy()[0].decode() if how else "plain")(request, request.get_response_sender())

    def count(self, request):
        return int(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0])

    def response(self, left, **more):
        text = np.array([f"{left} left", b"\x01"], np.object_)
        tensors = [pb_utils.Tensor("LEFT", np.array([left], np.int32)), pb_utils.Tensor("TEXT", text)]
        return pb_utils.InferenceResponse(tensors, **more)

    def plain(self, request, sender):
        for left in reversed(range(self.count(request))):
            sender.send(self.response(left))
        sender.send(flags=FINAL)

    def with_last(self, request, sender):
        for left in reversed(range(self.count(request))):
            sender.send(self.response(left), flags=FINAL if left == 0 else 0)

    def with_parameters(self, request, sender):
        sender.send(self.response(0, parameters={"part": 1}), flags=FINAL)

    def in_thread(self, request, sender):
        thread = threading.Thread(target=self.plain, args=(request, sender))
        thread.start()
        self.threads.append(thread)

    def with_error(self, request, sender):
        sender.send(self.response(1))
        sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("half way", pb_utils.TritonError.UNAVAILABLE)))
        sender.send(self.response(0), flags=FINAL)

    def raises(self, request, sender):
        sender.send(self.response(1))
        raise ValueError("the wine is corked")

    def forgets(self, request, sender):
        sender.send(self.response(1))

    def after_final(self, request, sender):
        sender.send(self.response(0), flags=FINAL)
        try:
            sender.send(self.response(0))
        except pb_utils.TritonModelException as error:
            pb_utils.Logger.log_info(f"refused: {error}")

    def until_cancelled(self, request, sender):
        def wait():
            sender.send(self.response(1))
            pause = threading.Event()
            while not sender.is_cancelled():
                pause.wait(0.005)
            pb_utils.Logger.log_info("saw the cancellation")
            sender.send(flags=FINAL)

        threading.Thread(target=wait, daemon=True).start()

    def finalize(self):
        for thread in self.threads:
            thread.join()
