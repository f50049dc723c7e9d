"""The last step: what text_recognition says becomes text."""

import pathlib
import sys

import triton_python_backend_utils as pb_utils

FOLDER = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(FOLDER))
import reading


class TritonPythonModel:
    def initialize(self, args):
        self.characters = reading.read_characters(FOLDER / "characters.txt")

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        boxes = pb_utils.get_input_tensor_by_name(request, "boxes").as_numpy()
        probability = pb_utils.get_input_tensor_by_name(request, "probability").as_numpy()
        text, score = reading.texts(probability, self.characters, len(boxes))
        return pb_utils.InferenceResponse([pb_utils.Tensor("text", text), pb_utils.Tensor("score", score)])
