"""A picture in, its text out: one model that calls text_detection and text_recognition."""

import pathlib
import sys

import triton_python_backend_utils as pb_utils

FOLDER = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(FOLDER))
import reading


def ask(model, x):
    request = pb_utils.InferenceRequest(model_name=model, requested_output_names=["fetch_name_0"], inputs=[pb_utils.Tensor("x", x)])
    response = request.exec()
    if response.has_error():
        raise pb_utils.TritonModelException(f"{model}: {response.error().message()}")
    return pb_utils.get_output_tensor_by_name(response, "fetch_name_0").as_numpy()


class TritonPythonModel:
    def initialize(self, args):
        self.characters = reading.read_characters(FOLDER / "characters.txt")

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        (picture,) = pb_utils.get_input_tensor_by_name(request, "picture").as_numpy()
        try:
            pixels = reading.open_picture(picture)
            boxes = reading.find_lines(pixels, ask("text_detection", reading.for_detection(pixels)))
        except reading.BadPicture as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
        text, score = reading.texts(ask("text_recognition", reading.cut_lines(pixels, boxes)), self.characters, len(boxes))
        return pb_utils.InferenceResponse([pb_utils.Tensor("text", text), pb_utils.Tensor("score", score), pb_utils.Tensor("boxes", boxes)])
