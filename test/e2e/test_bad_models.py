"""Models that cannot be served: a clear reason in the log and the index, and a server that lives."""

from __future__ import annotations

import json
import os
import threading

import pytest
from onnx import TensorProto

import clients
import graphs
import models
import pymodels
import server
from models import Model, Tensor

GRAPH = graphs.add_sub(TensorProto.FLOAT, TensorProto.FLOAT, ["batch", 16])
IN = (Tensor("INPUT0", "FP32", (16,)), Tensor("INPUT1", "FP32", (16,)))
OUT = (Tensor("OUTPUT0", "FP32", (16,)), Tensor("OUTPUT1", "FP32", (16,)))


def lying(name: str, inputs=IN, outputs=OUT, max_batch_size: int = 8, graph: bytes = GRAPH, **more) -> Model:
    return Model(name, inputs, outputs, max_batch_size, versions={1: graph}, **more)


def text(name: str, config: str, graph: bytes = GRAPH) -> Model:
    return Model(name, config=config, versions={1: graph})


# Each with the words that the log and the index must say of it.
FAULTS: list[tuple[Model, str]] = [
    (
        lying("wants_sequences", extra="sequence_batching { oldest { max_candidate_sequences: 4 } }"),
        "model 'wants_sequences' would not be served as its configuration says: sequence_batching: Shoal keeps no state",
    ),
    (
        text("ensemble", 'platform: "ensemble" max_batch_size: 1 ensemble_scheduling { step { model_name: "simple" model_version: -1 } }'),
        "must specify 'input_map' in step 0 of ensemble 'ensemble'",
    ),
    (
        lying("checked", extra='model_repository_agents { agents { name: "checksum" } }'),
        "model_repository_agents: Shoal runs no repository agents",
    ),
    (lying("corrupt_file", graph=b"\x08\x07garbage" * 50), "Protobuf parsing failed"),
    (lying("truncated_file", graph=GRAPH[: len(GRAPH) // 2]), "model.onnx"),
    (lying("empty_file", graph=b"\n"), "model.onnx"),
    (
        lying("wrong_width", inputs=(Tensor("INPUT0", "FP32", (8,)), IN[1])),
        "model 'wrong_width', tensor 'INPUT0': the model expects 2 dimensions (shape [-1,16]) but the model configuration "
        "specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit tensor "
        "shape, making complete shape [-1,8])",
    ),
    (
        lying("wrong_rank", inputs=(Tensor("INPUT0", "FP32", (4, 4)), IN[1])),
        "model 'wrong_rank', tensor 'INPUT0': the model expects 2 dimensions (shape [-1,16]) but the model configuration "
        "specifies 3 dimensions",
    ),
    (
        lying("wrong_output_width", outputs=(Tensor("OUTPUT0", "FP32", (8,)), OUT[1])),
        "model 'wrong_output_width', tensor 'OUTPUT0': the model expects 2 dimensions",
    ),
    (
        lying("wrong_type", inputs=(Tensor("INPUT0", "INT32", (16,)), IN[1])),
        "unable to load model 'wrong_type', configuration expects datatype TYPE_INT32 for input 'INPUT0', model provides "
        "TYPE_FP32",
    ),
    (
        lying("wrong_input", inputs=(Tensor("NOPE", "FP32", (16,)), IN[1])),
        "unexpected inference input 'NOPE', allowed inputs are: INPUT0, INPUT1",
    ),
    (
        lying("wrong_output", outputs=(Tensor("NOPE", "FP32", (16,)),)),
        "unexpected inference output 'NOPE', allowed outputs are: OUTPUT0, OUTPUT1",
    ),
    (
        lying("too_few_inputs", inputs=IN[:1]),
        "unable to load model 'too_few_inputs', configuration expects 1 inputs, model provides 2",
    ),
    (
        text("wrong_name", 'name: "other"\nbackend: "onnxruntime"\n'),
        "unexpected directory name 'wrong_name' for model 'other', directory name must equal model name",
    ),
    (text("bad_syntax", "max_batch_size: {{{\n"), "config.pbtxt"),
    (text("unknown_field", 'backend: "onnxruntime"\nmax_batch_sise: 4\n'), "max_batch_sise"),
    (text("unknown_enum", 'input { name: "INPUT0" data_type: TYPE_FLOAT dims: [ 16 ] }\n'), "TYPE_FLOAT"),
    (text("negative_batch", "max_batch_size: -1\n"), "'max_batch_size' must be non-negative value for negative_batch"),
    (text("no_data_type", 'input { name: "INPUT0" dims: [ 16 ] }\n'), "model input 'INPUT0' must specify 'data_type'"),
    (
        text("bad_reshape", 'input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] reshape { shape: [ 3 ] } }\n'),
        "model input 'INPUT0' has different size for dims and reshape",
    ),
    (text("unknown_backend", 'backend: "nosuch"\n'), "nosuch"),
    (lying("wrong_option", extra=models.parameter("intra_op_thread_count", "two")), 'intra_op_thread_count: got "two"'),
    (lying("gpu_without_gpu", extra="instance_group [ { kind: KIND_GPU count: 1 } ]\n"), "KIND_GPU"),
    (
        text("not_batchable", "max_batch_size: 4\n", graphs.identity(TensorProto.FLOAT, [3, 4])),
        "autofill failed for model 'not_batchable': model does not support batching while non-zero max_batch_size is "
        "specified",
    ),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """One server with every broken model and one good one."""
    repository = models.write(tmp_path_factory.mktemp("faults"), models.simple(), *(m for m, _ in FAULTS))
    (repository / "no_version").mkdir()
    (repository / "no_version" / "config.pbtxt").write_text('backend: "onnxruntime"\n')
    missing = repository / "missing_file"
    (missing / "1").mkdir(parents=True)
    (missing / "config.pbtxt").write_text('backend: "onnxruntime"\n')
    (repository / "a_file").write_text("not a model at all")
    flags = ("--exit-on-error=false", "--strict-readiness=false", *server.PORTS, *server.LOOPBACK)
    with server.Server("--model-repository", repository, *flags) as started:
        started.wait_ready()
        yield started


def index(running: server.Server) -> dict[str, dict]:
    return {m["name"]: m for m in json.loads(server.post(running.http, "/v2/repository/index").body)}


@pytest.mark.parametrize("fault, want", FAULTS, ids=[m.name for m, _ in FAULTS])
def test_the_reason_is_in_the_log_and_in_the_index(running, fault, want):
    assert want in unquoted(running.log), f"got the log\n{running.log}\nwant {want!r}"
    entry = index(running)[fault.name]
    assert entry.get("state") == "UNAVAILABLE", entry
    assert want in entry["reason"], entry


def unquoted(log: str) -> str:
    """The log without the escapes that a quoted value has."""
    return log.replace('\\"', '"').replace("\\n", "\n")


@pytest.mark.parametrize("fault", [m.name for m, _ in FAULTS] + ["no_version", "missing_file"])
def test_a_request_to_it_is_refused(running, fault):
    answer = clients.infer_json(running.http, clients.simple_json(), model=fault)
    assert answer.status == 404 and clients.error_of(answer).startswith(f"Request for unknown model: '{fault}'")
    assert server.get(running.http, f"/v2/models/{fault}/ready").status == 400


def test_a_model_without_versions_says_so(running):
    assert "at least one version must be available under the version policy of model 'no_version'" in unquoted(
        running.log
    )


def test_a_missing_model_file_is_named(running):
    assert "missing_file" in running.log and "model.onnx" in index(running)["missing_file"]["reason"]


def test_a_stray_file_is_no_model(running):
    assert "a_file" not in index(running)


def test_all_faults_of_one_configuration_are_told_at_once(serve):
    config = 'max_batch_sise: 4\ninput { name: "INPUT0" data_type: TYPE_FLOAT dims: [ 16 ] }\nmodel_warmups { }\n'
    running = serve("--exit-on-error=true", wanted=(text("many", config),))
    assert running.wait() == 1
    for word in ("max_batch_sise", "TYPE_FLOAT", "model_warmups", "config.pbtxt:1"):
        assert word in running.log, f"no {word!r} in\n{running.log}"


def test_the_good_model_is_served_beside_them(running):
    answer = clients.infer_json(running.http, clients.simple_json())
    assert answer.status == 200, answer.text
    assert index(running)["simple"]["state"] == "READY"


def test_files_that_change_and_go_missing_during_load(tmp_path):
    """A thread tears at the files of half the models while the server loads them all, again and again."""
    shaken = [lying(f"shaken{i}") for i in range(6)]
    stop = threading.Event()
    repository = models.write(tmp_path / "repository", models.simple(), *shaken)
    files = [repository / m.name / "1" / "model.onnx" for m in shaken]

    def shake():
        while not stop.is_set():
            for file in files:
                file.write_bytes(GRAPH[: len(GRAPH) // 3])
                os.truncate(file, 10)
                file.unlink()
                file.write_bytes(GRAPH)

    thread = threading.Thread(target=shake)
    thread.start()
    try:
        flags = ("--exit-on-error=false", "--strict-readiness=false", *server.PORTS, *server.LOOPBACK)
        for _ in range(3):
            with server.Server("--model-repository", repository, *flags) as running:
                running.wait_ready()
                assert clients.infer_json(running.http, clients.simple_json()).status == 200
                for name, entry in index(running).items():
                    assert entry["state"] == "READY" or entry["reason"], (name, entry)
                assert "BUG:" not in running.log and "goroutine " not in running.log, running.log
    finally:
        stop.set()
        thread.join()


def test_a_file_that_changes_after_load_changes_nothing(serve, repository):
    running = serve("--model-repository", path := repository(models.simple())).wait_ready()
    file = path / "simple" / "1" / "model.onnx"
    file.write_bytes(b"gone")
    assert clients.infer_json(running.http, clients.simple_json()).status == 200
    file.unlink()
    assert clients.infer_json(running.http, clients.simple_json()).status == 200


def test_fields_that_only_bring_speed_are_named_and_the_model_is_served(serve):
    extra = """
        parameters { key: "colour" value { string_value: "red" } }
        response_cache { enable: true }
        optimization { eager_batching: true }
    """
    running = serve(wanted=(models.with_extra(models.simple(), extra),)).wait_ready()
    assert clients.infer_json(running.http, clients.simple_json()).status == 200
    running.wait_for_log("parameter=colour")
    for want in ("response_cache is enabled, but the server has no cache; add --cache-config", "optimization.eager_batching: "):
        assert want in running.log, running.log


def test_sequences_that_a_models_own_code_asks_for_are_refused(tmp_path):
    code = """
        class TritonPythonModel:
            @staticmethod
            def auto_complete_config(config):
                config.add_input({"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1]})
                config.add_output({"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1]})
                config._model_config["sequence_batching"] = {}
                return config
    """
    with pymodels.serve(pymodels.write(tmp_path, "stateful", code)) as running:
        assert running.wait() == 1
        assert "sequence_batching: Shoal keeps no state" in running.log, running.log
