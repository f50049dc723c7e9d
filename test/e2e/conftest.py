"""What the suites share: one server with every good model, and clients for it.

With --target-http and --target-grpc the tests marked `peer` run against a
server that is already there, such as a real tritonserver with the repository
that `python test/e2e/write_peer_repository.py DIR` writes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib

import pytest
import tritonclient.grpc
import tritonclient.http

import models
import stage as stages
from server import LOOPBACK, PORTS, Server


@dataclasses.dataclass(frozen=True)
class Target:
    """Where the server under test listens; process is None when it is not ours."""

    http: str
    grpc: str
    metrics: str
    process: Server | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    for protocol in ("http", "grpc", "metrics"):
        parser.addoption(f"--target-{protocol}", default="", help=f"host:port of a running server's {protocol}")
    parser.addoption("--target-repository", default="", help="the repository of a running server under explicit control")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--target-http"):
        return
    skip = pytest.mark.skip(reason="only tests marked peer run against another server")
    for item in items:
        if not item.get_closest_marker("peer"):
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows why the tests that were tried again failed the first time."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"first try of {report.nodeid}")
        terminalreporter.line(report.longreprtext[-4000:])


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """The server that most tests share."""
    given = {p: request.config.getoption(f"--target-{p}") for p in ("http", "grpc", "metrics")}
    if given["http"]:
        yield Target(**given)
        return
    repository = models.write(tmp_path_factory.mktemp("repository"), *models.good())
    with Server("--model-repository", repository, *PORTS, *LOOPBACK) as server:
        server.wait_ready()
        yield Target(server.http, server.grpc, server.metrics, server)
        assert server.process.poll() is None, f"the shared server died:\n{server.log}"


@pytest.fixture(scope="session")
def http_client(target: Target):
    client = tritonclient.http.InferenceServerClient(target.http, concurrency=4, network_timeout=20)
    yield client
    client.close()


@pytest.fixture(scope="session")
def grpc_client(target: Target):
    client = tritonclient.grpc.InferenceServerClient(target.grpc)
    yield client
    client.close()


@pytest.fixture
def repository(tmp_path: pathlib.Path):
    """A function that writes models into a fresh repository and returns its path."""

    def write(*wanted: models.Model) -> pathlib.Path:
        return models.write(tmp_path / "repository", *wanted)

    return write


@pytest.fixture
def serve(repository):
    """A function that starts a server of its own with the given models and flags."""
    running: list[Server] = []

    def start(*args: object, wanted: tuple[models.Model, ...] = (), **more) -> Server:
        if wanted:
            args = ("--model-repository", repository(*wanted), *args)
        server = Server(*args, *PORTS, *LOOPBACK, **more)
        running.append(server)
        return server

    yield start
    for server in running:
        server.__exit__()


@pytest.fixture(scope="module")
def shared_stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A server with the models that the test's file lists as MODELS, and, when a test asks for it, one with slower ones."""
    with contextlib.ExitStack() as stack:

        def start(wanted: list[models.Model], **more) -> stages.Stage:
            repository = models.write(tmp_path_factory.mktemp("repository"), *wanted)
            server = stack.enter_context(Server("--model-repository", repository, *PORTS, *LOOPBACK))
            made = stages.Stage(server.wait_ready(), **more)
            stack.callback(end, made)
            return made

        @functools.cache
        def slower() -> stages.Stage:
            return start([models.slower(m, stages.SLOWER) for m in request.module.MODELS])

        yield start(request.module.MODELS, slower=slower)


def end(made: stages.Stage) -> None:
    made.close()
    assert made.server.process.poll() is None, f"the server died:\n{made.server.log}"


@pytest.fixture
def stage(shared_stage: stages.Stage) -> stages.Stage:
    """The server with the file's MODELS, counting from the beginning of the test."""
    shared_stage.begin()
    return shared_stage
