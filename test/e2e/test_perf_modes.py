"""What shoal perf can send: sequences, shared memory, expected answers, growing load; over TLS with client certificates."""

import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import threading

import pytest

import models
import sequenced
import tools
from test_perf import QUICK, perf, tool  # noqa: F401 - fixtures


@pytest.mark.parametrize("flags", ["-i http", "-i grpc", "-i grpc --streaming", "-i http --request-rate-range 100", "-i grpc --request-rate-range 100 --serial-sequences"])
def test_a_sequence_model_gets_sequences(target, perf, flags):  # noqa: F811
    front = sequenced.over_grpc(target.grpc) if "grpc" in flags else sequenced.over_http(target.http)
    with front as address:
        done = perf("-m", "simple", "-u", address, *flags.split(), "--sequence-length", 4, "--num-of-sequences", 2, "-p", "300", "-s", "900")
        count = int(re.search(r"Request count: (\d+)", done.stdout)[1])
        sequences = int(re.search(r"Sequence count: (\d+) \([\d.e+]+ seq/sec\)", done.stdout)[1])
        assert "Using asynchronous calls for inference" in done.stdout
        assert abs(sequences - count / 4) <= 4 + 0.1 * count / 4, done.stdout
        done = perf("-m", "simple", "-u", address, *flags.split(), "-b", 2, rc=99)
        assert "wants sequences of requests: -b must be 1" in done.stderr


@pytest.mark.parametrize("flags", ["-i http", "-i grpc", "-i grpc --streaming"])
def test_tensors_in_shared_memory(serve, perf, flags):  # noqa: F811
    target = serve("--allow-client-shm=true", wanted=(models.simple(), models.identity("BYTES", "text", dims=(-1,)))).wait_ready()
    address = target.grpc if "grpc" in flags else target.http
    for model in (["-m", "simple", "-b", 3], ["-m", "text", "--shape", "INPUT0:4", "--output-shared-memory-size", 4096]):
        done = perf(*model, "-u", address, *flags.split(), "--shared-memory", "system", "--request-count", 20, "--concurrency-range", 2)
        assert "Request count: 20\n" in done.stdout
    done = perf("-m", "text", "--shape", "INPUT0:4", "-u", address, *flags.split(), "--shared-memory", "system", "--output-shared-memory-size", 8, "--request-count", 20, rc=99)
    assert "should be at least" in done.stderr, done.stderr
    assert regions(target) == [] and not leftovers(), "the memory must be gone with the run"


def regions(target) -> list:
    import tritonclient.http

    return tritonclient.http.InferenceServerClient(target.http).get_system_shared_memory_status()


def leftovers() -> list[str]:
    return [p.name for p in pathlib.Path("/dev/shm").glob("shoal_perf_*")]


def test_an_interrupted_run_leaves_no_memory(tool, serve):  # noqa: F811
    target = serve("--allow-client-shm=true", wanted=(models.simple(),)).wait_ready()
    command = [str(tool), "-m", "simple", "-u", target.http, "--shared-memory", "system", "-p", "5000", "-v"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("Request concurrency"):
            break
    assert len(regions(target)) == 2
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert regions(target) == [] and not leftovers()


def test_a_server_that_takes_no_shared_memory_says_so(target, perf):  # noqa: F811
    done = perf("-m", "simple", "-u", target.http, "--shared-memory", "system", rc=99)
    assert "--allow-client-shm=true" in done.stderr and not leftovers()


@pytest.mark.parametrize("flags", ["-i http", "-i http --output-tensor-format json", "-i grpc", "-i grpc --streaming"])
def test_answers_are_held_against_validation_data(target, perf, tmp_path, flags):  # noqa: F811
    address = target.grpc if "grpc" in flags else target.http
    ones, twos = [1] * 16, [2] * 16
    data = {"data": [{"INPUT0": ones, "INPUT1": ones}, {"INPUT0": twos, "INPUT1": ones}], "validation_data": [{"OUTPUT0": twos}, {"OUTPUT0": [3] * 16, "OUTPUT1": ones}]}
    (tmp_path / "good.json").write_text(json.dumps(data))
    done = perf("-m", "simple", "-u", address, *flags.split(), "-b", 2, "--input-data", "good.json", "--request-count", 10)
    assert "Request count: 10\n" in done.stdout
    data["validation_data"][1]["OUTPUT1"] = [1] * 15 + [9]
    (tmp_path / "bad.json").write_text(json.dumps(data))
    done = perf("-m", "simple", "-u", address, *flags.split(), "--input-data", "bad.json", "--concurrency-range", 1, *QUICK, rc=99)
    assert 'the answer is not the expected one: output "OUTPUT1" of request 2 differs at byte 60' in done.stderr, done.stderr


def test_growing_load_is_exported(target, perf, tmp_path):  # noqa: F811
    flags = "-i grpc --async --streaming --profile-export-file p.json --periodic-concurrency-range 10:100:30 --request-period 10 --request-parameter max_tokens:256:int"
    perf("-m", "simple", "-u", target.grpc, *flags.split())
    (experiment,) = json.load(open(tmp_path / "p.json"))["experiments"]
    assert len(experiment["requests"]) == 100


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority, a server's certificate for localhost and a client's, in PEM and DER."""
    tools.need("openssl")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*args: object):
        subprocess.run(["openssl", *(str(a) for a in args)], check=True, capture_output=True, cwd=folder)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2, "-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.pem")
    for name in ("localhost", "client"):
        (folder / "names").write_text(f"subjectAltName=DNS:{name}\n")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", name + ".key", "-out", name + ".csr")
        openssl("x509", "-req", "-in", name + ".csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", 2, "-extfile", "names", "-out", name + ".pem")
        openssl("x509", "-in", name + ".pem", "-outform", "DER", "-out", name + ".der")
        openssl("pkcs8", "-topk8", "-nocrypt", "-in", name + ".key", "-outform", "DER", "-out", name + "key.der")
    return folder


@pytest.fixture
def https(target, certificates):
    """The address of a proxy that wants a client's certificate and passes bytes on to the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "localhost.pem", certificates / "localhost.key")
    context.load_verify_locations(certificates / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = target.http.rsplit(":", 1)

    def pass_on(source, sink):
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept():
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            try:
                secure = context.wrap_socket(raw, server_side=True)
            except (ssl.SSLError, OSError):
                continue
            behind = socket.create_connection((host, int(port)))
            for pair in ((secure, behind), (behind, secure)):
                threading.Thread(target=pass_on, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


def test_https_with_a_clients_certificate(https, certificates, perf):  # noqa: F811
    roots = ("--ssl-https-ca-certificates-file", certificates / "ca.pem")
    pem = ("--ssl-https-client-certificate-file", certificates / "client.pem", "--ssl-https-private-key-file", certificates / "client.key")
    der = ("--ssl-https-client-certificate-file", certificates / "client.der", "--ssl-https-client-certificate-type", "DER",
           "--ssl-https-private-key-file", certificates / "clientkey.der", "--ssl-https-private-key-type", "DER")  # fmt: skip
    good = ("-m", "simple", "-u", f"https://localhost:{https}", "--request-count", 5)
    for flags in ((*roots, *pem), (*roots, *der), ("--ssl-https-verify-peer", 0, *pem)):
        assert "Request count: 5\n" in perf(*good, *flags).stdout
    assert "certificate" in perf(*good, *pem, rc=99).stderr  # an authority that is not trusted
    assert perf(*good, *roots, rc=99).stderr  # no certificate of the client's
    other = ("-m", "simple", "-u", f"https://127.0.0.1:{https}", "--request-count", 5, *roots, *pem)
    assert "127.0.0.1" in perf(*other, rc=99).stderr
    assert "Request count: 5\n" in perf(*other, "--ssl-https-verify-host", 0).stdout
    wrong = perf(*good, *roots, *pem, "--ssl-https-private-key-type", "ENG", rc=99)
    assert "PEM or DER" in wrong.stderr


def test_a_stopping_grpc_server_is_not_held_up(tool, serve):  # noqa: F811
    """Idle connections of an open loop hear that the server wants to stop."""
    target = serve(wanted=(models.simple(),)).wait_ready()
    command = [str(tool), "-m", "simple", "-u", target.grpc, "-i", "grpc", "--request-rate-range", "20", "-p", "5000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    for line in process.stdout:
        if line.startswith("Request Rate"):
            break
    target.process.send_signal(signal.SIGTERM)
    assert target.process.wait(timeout=4) == 0
    out, err = process.communicate(timeout=30)
    assert process.returncode == 99 and "error: " in err, out + err
