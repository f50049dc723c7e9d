"""LitServe: one worker, max batch 32, wait 1 ms. The model is the first argument."""

import sys
from typing import Annotated

import litserve
import nets
import numpy as np
from fastapi import Body, Response

Body32 = Annotated[bytes, Body(media_type="application/octet-stream")]


class Api(litserve.LitAPI):
    """Bodies are the float32 values of one row."""

    def __init__(self, name):
        super().__init__(max_batch_size=32, batch_timeout=0.001, api_path="/infer")
        self.name = name

    def setup(self, device):
        self.net = nets.NETS[self.name]()

    def decode_request(self, request: Body32):
        return np.frombuffer(request, np.float32)

    def batch(self, inputs):
        return np.stack(inputs)

    def predict(self, x):
        return self.net(x)

    def unbatch(self, output):
        return list(output)

    def encode_response(self, output):
        return Response(output.tobytes(), media_type="application/octet-stream")


if __name__ == "__main__":
    port = int(sys.argv[sys.argv.index("--http-port") + 1])
    server = litserve.LitServer(Api(sys.argv[1]), accelerator="cpu")
    server.run(host="127.0.0.1", port=port, num_api_servers=1, generate_client_file=False, log_level="warning", access_log=False)
