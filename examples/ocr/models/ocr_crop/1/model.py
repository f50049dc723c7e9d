"""The step between the two models: finds the lines in what text_detection says, and cuts them out of the picture."""

import pathlib
import sys

import triton_python_backend_utils as pb_utils

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3]))
import reading


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        pixels = pb_utils.get_input_tensor_by_name(request, "pixels").as_numpy()
        probability = pb_utils.get_input_tensor_by_name(request, "probability").as_numpy()
        try:
            boxes = reading.find_lines(pixels, probability)
        except reading.BadPicture as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
        return pb_utils.InferenceResponse([pb_utils.Tensor("boxes", boxes), pb_utils.Tensor("lines", reading.cut_lines(pixels, boxes))])
