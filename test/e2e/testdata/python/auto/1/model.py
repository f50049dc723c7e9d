"""A model without config.pbtxt: auto_complete_config says everything."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_input({"name": "BY", "data_type": "TYPE_FP32", "dims": [1], "optional": True})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_max_batch_size(8)
        config.set_dynamic_batching()
        return config

    def execute(self, requests):
        return [self.one(r) for r in requests]

    def one(self, request):
        y = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        by = pb_utils.get_input_tensor_by_name(request, "BY")
        if by is not None:
            y = y * by.as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)])
