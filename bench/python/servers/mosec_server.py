"""mosec: one worker, max batch 32, wait 1 ms. The model is the first argument."""

import os
import sys

import nets
import numpy as np
from mosec import Server, Worker


class Raw(Worker):
    """Bodies are the float32 values of one row."""

    def __init__(self):
        self.net = nets.NETS[os.environ["MODEL"]]()

    def deserialize(self, data):
        return np.frombuffer(data, np.float32)

    def serialize(self, data):
        return data.tobytes()

    def forward(self, data):
        return list(self.net(np.stack(data)))


if __name__ == "__main__":
    # The worker is a process of its own, and mosec reads the command line itself.
    os.environ.update(
        MODEL=sys.argv[1],
        MOSEC_PORT=sys.argv[sys.argv.index("--http-port") + 1],
        MOSEC_ADDRESS="127.0.0.1",
        MOSEC_LOG_LEVEL="warning",
    )
    del sys.argv[1:]
    server = Server()
    server.append_worker(Raw, max_batch_size=32, max_wait_time=1, route="/infer")
    server.run()
