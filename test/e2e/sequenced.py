"""A server in front of another that says of every model that it wants sequences, for clients that make them."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import threading
from concurrent import futures

import grpc
from tritonclient.grpc import service_pb2

SERVICE = "/inference.GRPCInferenceService/"


@contextlib.contextmanager
def over_http(target: str):
    """Yields the address of the server in front of the HTTP address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self):
            super().setup()
            self.behind = http.client.HTTPConnection(target, timeout=20)

        def finish(self):
            self.behind.close()
            super().finish()

        def forward(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.behind.request(self.command, self.path, body, dict(self.headers))
            answer = self.behind.getresponse()
            data = answer.read()
            if self.path.endswith("/config") and answer.status == 200:
                data = json.dumps({**json.loads(data), "sequence_batching": {"oldest": {"max_candidate_sequences": 16}}}).encode()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = forward

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as front:
        front.daemon_threads = True
        thread = threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"127.0.0.1:{front.server_address[1]}"
        finally:
            front.shutdown()
            thread.join()


@contextlib.contextmanager
def over_grpc(target: str):
    """Yields the address of the server in front of the gRPC address."""
    channel = grpc.insecure_channel(target)

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            if details.method == SERVICE + "ModelStreamInfer":
                behind = channel.stream_stream(details.method)
                return grpc.stream_stream_rpc_method_handler(lambda requests, _: behind(requests))
            behind = channel.unary_unary(details.method)

            def call(request: bytes, context: grpc.ServicerContext) -> bytes:
                try:
                    data = behind(request, timeout=20)
                except grpc.RpcError as error:
                    context.abort(error.code(), error.details())
                if details.method == SERVICE + "ModelConfig":
                    answer = service_pb2.ModelConfigResponse.FromString(data)
                    answer.config.sequence_batching.oldest.max_candidate_sequences = 16
                    data = answer.SerializeToString()
                return data

            return grpc.unary_unary_rpc_method_handler(call)

    front = grpc.server(futures.ThreadPoolExecutor(16))
    front.add_generic_rpc_handlers((Handler(),))
    port = front.add_insecure_port("127.0.0.1:0")
    front.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        front.stop(None).wait()
        channel.close()
