"""The first step: the bytes of a picture file become pixels, and what text_detection wants of them."""

import pathlib
import sys

import triton_python_backend_utils as pb_utils

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3]))
import reading


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        (picture,) = pb_utils.get_input_tensor_by_name(request, "picture").as_numpy()
        try:
            pixels = reading.open_picture(picture)
        except reading.BadPicture as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
        return pb_utils.InferenceResponse([pb_utils.Tensor("pixels", pixels), pb_utils.Tensor("image", reading.for_detection(pixels))])
