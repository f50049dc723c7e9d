"""The commands of the guide to batch inference with Multi Model Server, as written there, with a handler that pads its batches."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import threading

import archives
from server import environment, free_port, wait_until

# The guide's handler with lists in place of mxnet's arrays (eight workers start): it binds the batch size, pads what is missing and drops the padding.
PADDING = """
class Batching:
    def initialize(self, context):
        self._batch_size = context.system_properties["batch_size"]
        self.erroneous_reqs = set()

    def preprocess(self, request):
        rows = []
        self.erroneous_reqs, self._num_requests = set(), len(request)
        for idx, data in enumerate(request):
            img = data.get("data")
            if img is None:
                img = data.get("body")
            if img is None or len(img) == 0:
                self.erroneous_reqs.add(idx)
                img = b"0"
            rows.append([float(len(img))])
        if self._batch_size > self._num_requests:
            rows += [[0.0]] * (self._batch_size - self._num_requests)
        return rows

    def inference(self, model_input):
        assert len(model_input) == self._batch_size, len(model_input)
        return [[value / 2 for value in row] for row in model_input]

    def postprocess(self, data):
        res = []
        for idx, resp in enumerate(data[: self._num_requests]):
            res.append({"probability": resp[0]} if idx not in self.erroneous_reqs else "This request was not processed successfully")
        return res

    def handle(self, data, context):
        return self.postprocess(self.inference(self.preprocess(data)))
"""


def test_the_guide_as_written(tmp_path):
    """Ports 8080 and 8081 are the guide's; where they are taken, other ones do."""
    ports = {"8080": None, "8081": None}
    for port in ports:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", int(port)))
                ports[port] = port
            except OSError:
                ports[port] = str(free_port())
    store = tmp_path / "store"
    source = tmp_path / "src"
    store.mkdir()
    source.mkdir()
    (source / "service.py").write_text(PADDING)
    for name in ("mxnet-model-server", "model-archiver"):
        archives.link(tmp_path, name)
    (tmp_path / "kitten.jpg").write_bytes(b"j" * 1000)
    env = {**environment(), "TMPDIR": str(tmp_path), "PATH": f"{tmp_path}{os.pathsep}{environment()['PATH']}"}

    def run(command: str) -> str:
        for port, taken in ports.items():
            command = command.replace(f"localhost:{port}", f"localhost:{taken}")
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
        return done.stdout

    def load(requests: int, callers: int) -> None:
        if shutil.which("ab"):
            out = run(f'ab -k -l -n {requests} -c {callers} -T "image/jpeg" -p kitten.jpg localhost:8080/predictions/resnet-152')
            assert "Failed requests:        0" in out and f"Complete requests:      {requests}" in out and "Non-2xx" not in out, out

    run("model-archiver --model-name resnet-152 --model-path src --handler service --export-path store")
    (tmp_path / "config.properties").write_text(
        f"inference_address=http://127.0.0.1:{ports['8080']}\nmanagement_address=http://127.0.0.1:{ports['8081']}\n"
        "model_store=store\nnumber_of_netty_threads=32\njob_queue_size=1000\nasync_logging=true\n"
    )
    subprocess.run("mxnet-model-server --start", shell=True, cwd=tmp_path, env=env, check=True, timeout=60, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid = int((tmp_path / ".model_server.pid").read_text())
    class Bucket(http.server.SimpleHTTPRequestHandler):
        """Answers every path with the archive."""

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write((store / "resnet-152.mar").read_bytes())

        def log_message(self, *_: object) -> None:
            pass

    bucket = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    threading.Thread(target=bucket.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{bucket.server_port}"
    try:
        assert run("curl -s localhost:8080/ping") == '{\n  "status": "Healthy"\n}\n'
        told = run('curl -s -X POST "localhost:8081/models?url=resnet-152.mar&batch_size=8&max_batch_delay=10&initial_workers=1"')
        assert json.loads(told) == {"status": "Workers scaled"}
        described = json.loads(run("curl -s localhost:8081/models/resnet-152"))
        assert (described["batchSize"], described["maxBatchDelay"], described["workers"][0]["status"]) == (8, 10, "READY")
        assert json.loads(run("curl -s -X POST localhost:8080/predictions/resnet-152 -T kitten.jpg")) == {"probability": 500.0}
        load(1000, 100)
        # The measurement: other numbers, the archive from a URL, and no number of workers at all.
        for query, told in (
            ("resnet-152.mar&batch_size=8&max_batch_delay=50", 'Model "resnet-152" registered'),
            (f"{url}/model-server/model_archive_1.0/examples/resnet-152-batching/resnet-152.mar&batch_size=16&max_batch_delay=50&initial_workers=8", "Workers scaled"),
        ):
            assert json.loads(run("curl -s -X DELETE localhost:8081/models/resnet-152")) == {"status": 'Model "resnet-152" unregistered'}
            assert json.loads(run(f'curl -s -X POST "localhost:8081/models?url={query}"')) == {"status": told}
        described = json.loads(run("curl -s localhost:8081/models/resnet-152"))
        assert (described["batchSize"], described["maxBatchDelay"], len(described["workers"])) == (16, 50, 8)
        load(2000, 1000)
        assert run("mxnet-model-server --stop").splitlines()[-1] == "Model server stopped."
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), 10, "the server's end")
    finally:
        bucket.shutdown()
        bucket.server_close()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

