"""FastAPI on uvicorn, one process, no batching. The model is the first argument."""

import sys

import nets
import numpy as np
import uvicorn
from fastapi import FastAPI, Request, Response

app = FastAPI()
net = nets.NETS[sys.argv[1]]()


@app.get("/health")
async def health():
    return {}


@app.post("/infer")
async def infer(request: Request):
    """Bodies are the float32 values of one row."""
    row = np.frombuffer(await request.body(), np.float32)
    return Response(net(row[np.newaxis]).tobytes(), media_type="application/octet-stream")


if __name__ == "__main__":
    port = int(sys.argv[sys.argv.index("--http-port") + 1])
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)
