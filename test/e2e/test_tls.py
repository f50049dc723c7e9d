"""TLS on every port: HTTP, gRPC and metrics, with and without certificates of clients, which the files may change."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import ssl
import subprocess

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

import clients
import models
import server
import tools

PROTOCOLS = ("http", "grpc", "metrics")


class Authority:
    """A certificate authority of openssl, with what it has signed, in one folder."""

    def __init__(self, folder: pathlib.Path):
        tools.need("openssl")
        folder.mkdir()
        self.folder, self.root = folder, folder / "ca.pem"
        self._run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2, "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
        (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")

    def sign(self, name: str) -> tuple[pathlib.Path, pathlib.Path]:
        """Makes a certificate for localhost and returns it with its key."""
        self._run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", "csr")
        self._run("x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", 2, "-extfile", "names", "-out", f"{name}.pem")
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def _run(self, *args: object) -> None:
        subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, cwd=self.folder)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls") / "stranger")


def start(serve, cert, key, root=None, wanted=(models.simple(),)) -> server.Server:
    """A server with TLS on all ports; metrics take the files of HTTP."""
    use = "use-ssl-mutual" if root else "use-ssl"
    flags = [f"--{p}-{use}=true" for p in PROTOCOLS]
    for p in ("http", "grpc"):
        flags += [f"--{p}-server-cert={cert}", f"--{p}-server-key={key}"] + ([f"--{p}-root-cert={root}"] if root else [])
    running = serve(*flags, wanted=wanted)
    running.wait_for_log("msg=ready")
    return running


def curl(address: str, path: str, *args: object) -> subprocess.CompletedProcess:
    tools.need("curl")
    url = path if "://" in path else f"https://{address}{path}"
    return subprocess.run(["curl", "-sS", "--max-time", "20", *map(str, args), url], capture_output=True, text=True)


def ask(running: server.Server, protocol: str, root, cert=None, key=None) -> bool:
    """Whether the official client gets the right answer; curl for metrics."""
    shown = ("--cert", cert, "--key", key) if cert else ()
    if protocol == "metrics":
        return "nv_inference_count" in curl(running.metrics, "/metrics", "--cacert", root, *shown).stdout
    try:
        if protocol == "http":
            files = {"ca_certs": str(root), **({"certfile": str(cert), "keyfile": str(key)} if cert else {})}
            client = tritonclient.http.InferenceServerClient(running.http, ssl=True, ssl_options=files)
        else:
            files = {"root_certificates": str(root), **({"certificate_chain": str(cert), "private_key": str(key)} if cert else {})}
            client = tritonclient.grpc.InferenceServerClient(running.grpc, ssl=True, **files)
        with client:
            clients.assert_simple(client.infer("simple", clients.simple_inputs(clients.LIBRARIES[protocol])))
        return True
    except (InferenceServerException, OSError):
        return False


@pytest.mark.parametrize("mutual", [False, True], ids=["server", "mutual"])
def test_only_clients_that_may_are_served(serve, authority, stranger, mutual):
    running = start(serve, *authority.sign("server"), authority.root if mutual else None)
    good, bad = authority.sign("client"), stranger.sign("client")
    for protocol in PROTOCOLS:
        assert ask(running, protocol, authority.root, *good), protocol
        assert ask(running, protocol, authority.root) != mutual, protocol
        assert ask(running, protocol, authority.root, *bad) != mutual, protocol
        assert not ask(running, protocol, stranger.root, *good), f"{protocol}: the client must not trust the server"


def test_https_is_http_in_every_other_way(serve, authority):
    running = start(serve, *authority.sign("server"), wanted=(models.simple(), models.identity("FP32")))
    trust = ("--cacert", authority.root)
    assert json.loads(curl(running.http, "/v2", *trust).stdout)["name"] == "shoal"
    got = curl(running.http, "/v2/models/simple/infer", *trust, "-d", json.dumps(clients.simple_json()))
    assert json.loads(got.stdout)["outputs"][0]["data"] == (clients.RAMP + clients.ONES).ravel().tolist()
    assert curl(running.http, "/v2/nosuch", *trust, "-w", "%{http_code}").stdout.endswith("404")
    plain = curl("", f"http://{running.http}/v2/health/live", "-w", "%{http_code}")
    assert plain.stdout == '{"error":"this port speaks HTTPS; use https:// in the URL"}400', plain
    array = np.arange(4_000_000, dtype=np.float32).reshape(1000, 4000)  # many records, each way
    with tritonclient.http.InferenceServerClient(running.http, ssl=True, ssl_options={"ca_certs": str(authority.root)}) as client:
        got = client.infer("identity_fp32", [clients.tensor(tritonclient.http, "INPUT0", "FP32", array)])
        np.testing.assert_array_equal(got.as_numpy("OUTPUT0"), array)
        got = client.infer("simple", clients.simple_inputs(tritonclient.http), request_compression_algorithm="gzip", response_compression_algorithm="gzip")
        clients.assert_simple(got)
    running.signal()
    assert running.wait() == 0, running.log


def shown(running: server.Server, protocol: str, root: pathlib.Path) -> int:
    """The number of the certificate that the server shows."""
    context = ssl.create_default_context(cafile=str(root))
    context.set_alpn_protocols(["h2" if protocol == "grpc" else "http/1.1"])
    host, port = getattr(running, protocol).rsplit(":", 1)
    with socket.create_connection((host, int(port)), 10) as plain, context.wrap_socket(plain, server_hostname="localhost") as secure:
        cert = secure.getpeercert()
        assert cert is not None
        return int(str(cert["serialNumber"]), 16)


def test_changed_certificates_are_used_at_once(serve, authority, stranger, tmp_path):
    def put(made: tuple[pathlib.Path, pathlib.Path]) -> None:
        for source, name in zip(made, ("cert", "key")):
            (tmp_path / "new").write_bytes(source.read_bytes())
            os.replace(tmp_path / "new", tmp_path / name)

    put(authority.sign("first"))
    running = start(serve, tmp_path / "cert", tmp_path / "key")
    before = {p: shown(running, p, authority.root) for p in PROTOCOLS}
    with tritonclient.http.InferenceServerClient(running.http, ssl=True, ssl_options={"ca_certs": str(authority.root)}) as client:
        assert client.is_server_live()
        put(authority.sign("second"))
        for p in PROTOCOLS:
            server.wait_until(lambda: shown(running, p, authority.root) != before[p], 20, f"the new certificate of {p}")
        assert client.is_server_live()  # on its old connection
        (tmp_path / "cert").write_text("no certificate")
        server.wait_until(lambda: shown(running, "http", authority.root) and "the last good ones stay" in running.log, 20, "a warning")
        put(stranger.sign("third"))
        server.wait_until(lambda: ask(running, "http", stranger.root), 20, "the new authority")


@pytest.mark.parametrize("flags, words", [
    (["--http-use-ssl=true"], "--http-use-ssl needs --http-server-cert and --http-server-key"),
    (["--grpc-use-ssl-mutual=true", "--grpc-server-cert=a", "--grpc-server-key=b"], "--grpc-use-ssl-mutual needs --grpc-root-cert"),
    (["--metrics-use-ssl=true", "--http-server-cert=nosuch.pem", "--http-server-key=b"], "--metrics-server-cert: stat nosuch.pem"),
])  # fmt: skip
def test_missing_files_are_named_by_their_flags(serve, flags, words):
    running = serve("--demo", *flags)
    assert running.wait() != 0
    assert words in running.log, running.log
