"""An async execute of a decoupled model: requests overlap in one instance and answer out of order."""

import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        await asyncio.gather(*(self.one(r) for r in requests))

    async def one(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        sender = request.get_response_sender()
        for step in range(3):
            await asyncio.sleep(0.001 * float(x[0, 0]))
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + step)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
