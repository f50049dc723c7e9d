"""Unix sockets, and the addresses that the server says it listens on."""

from __future__ import annotations

import http.client
import socket
import subprocess

import tritonclient.grpc as library

import clients
import models
import server


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str):
        super().__init__("localhost", timeout=5)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(5)
        self.sock.connect(self.path)


def ready(path) -> bool:
    try:
        connection = UnixConnection(str(path))
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False


def test_http_grpc_and_metrics_over_unix_sockets(tmp_path, repository):
    paths = {p: tmp_path / f"{p}.sock" for p in ("http", "grpc", "metrics")}
    flags = [f"--{p}-address=unix://{path}" for p, path in paths.items()]
    with server.Server("--model-repository", repository(models.simple()), *flags) as running:
        server.wait_until(lambda: ready(paths["http"]), 20, f"readiness over a socket; log:\n{running.log}")
        connection = UnixConnection(str(paths["metrics"]))
        connection.request("GET", "/metrics")
        assert b"nv_inference_request_success" in connection.getresponse().read()
        with library.InferenceServerClient(f"unix://{paths['grpc']}") as client:
            clients.assert_simple(client.infer("simple", clients.simple_inputs(library)))
        for protocol, path in paths.items():
            assert str(path) in running.address(protocol)
        check_commands(paths)
        running.signal()
        assert running.wait() == 0
    assert not any(path.exists() for path in paths.values())


def check_commands(paths) -> None:
    """perf and top take sockets, suggest the model that was meant, and complete its name."""
    for protocol in ("http", "grpc"):
        place = ("-i", protocol, "-u", f"unix://{paths[protocol]}")
        done = run("perf", "-m", "simple", *place, "--request-count=20")
        assert done.returncode == 0 and "Throughput" in done.stdout, done.stdout + done.stderr
        done = run("perf", "-m", "smiple", *place)
        assert 'did you mean "simple"?' in done.stderr, done.stderr
        assert "simple" in run("__complete", "perf", *place, "-m", "").stdout.splitlines()
    place = (f"unix://{paths['http']}", f"--metrics-url=unix://{paths['metrics']}")
    done = run("top", "--once", "--interval=50ms", *place)
    assert done.returncode == 0 and "simple" in done.stdout and "%" in done.stdout, done.stdout + done.stderr
    assert 'did you mean "simple"?' in run("top", "--once", "--model=smiple", *place).stderr


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([server.BINARY, *args], capture_output=True, text=True, timeout=30)


def test_a_socket_that_a_dead_server_left_is_replaced(tmp_path, repository):
    path = tmp_path / "http.sock"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    flags = (f"--http-address=unix://{path}", "--allow-grpc=false", "--allow-metrics=false")
    with server.Server("--model-repository", repository(models.simple()), *flags) as running:
        server.wait_until(lambda: ready(path), 20, f"readiness over a socket; log:\n{running.log}")


def test_the_log_names_ports_that_answer(target):
    for address in (target.http, target.grpc, target.metrics):
        host, port = address.rsplit(":", 1)
        assert host == "127.0.0.1" and int(port) > 0
        socket.create_connection((host, int(port)), timeout=5).close()
