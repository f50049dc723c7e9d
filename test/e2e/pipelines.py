"""The repository of ensembles and their parts: ONNX and Python models that a real tritonserver serves as they are.

Usage: python test/e2e/pipelines.py DIR writes it, for a server that the tests are to be run against.
"""

from __future__ import annotations

import pathlib
import sys

import graphs
import models
import pymodels
from models import Model, Tensor

FP4 = ("FP32", (4,))
TAIL = "\ninstance_group { count: 1 kind: KIND_CPU }\n"

_HEAD = """
    import numpy as np
    import triton_python_backend_utils as pb_utils
"""
_ECHO = (
    _HEAD
    + """
    class TritonPythonModel:
        def execute(self, requests):
            out = []
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
                if (x < 0).any():
                    raise ValueError("a negative number")
                told = f"{request.request_id()} {request.correlation_id()} {request.flags()} {request.parameters()}"
                tensors = [pb_utils.Tensor("OUTPUT0", x + 1)]
                if "TOLD" in request.requested_output_names():
                    tensors.append(pb_utils.Tensor("TOLD", np.array([[told]] * x.shape[0], np.object_)))
                out.append(pb_utils.InferenceResponse(tensors))
            return out
"""
)
_MANY = (
    _HEAD
    + """
    class TritonPythonModel:
        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                x = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
                for i in range(int(x[0, 0])):
                    if x[0, 1] == i + 1:
                        sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("no more")))
                        break
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x + i)]))
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return None
"""
)
_OPTIONAL = (
    _HEAD
    + """
    class TritonPythonModel:
        def execute(self, requests):
            out = []
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
                more = pb_utils.get_input_tensor_by_name(request, "INPUT1")
                out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x if more is None else x + more.as_numpy())]))
            return out
"""
)

# A model that does what the parameter "act" says: it calls others. Y is an array, TEXT what it has to tell.
_BLS = (
    _HEAD
    + """
    import concurrent.futures
    import json


    def ask(model, x, decoupled=False, **more):
        return pb_utils.InferenceRequest(
            model_name=model, requested_output_names=more.pop("wanted", ["OUTPUT0"]), inputs=[pb_utils.Tensor(more.pop("name", "INPUT0"), x)], **more
        )


    def value(response, name="OUTPUT0"):
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, name).as_numpy()


    def told(response):
        error = response.error()
        return f"{response.has_error()} {int(error.code()) if error else None} {error.message() if error else None}"


    class TritonPythonModel:
        def initialize(self, args):
            self.early = ""
            try:
                ask("double", np.zeros((1, 4), np.float32)).exec()
            except Exception as e:
                self.early = str(e)

        def execute(self, requests):
            return [self.one(r) for r in requests]

        def one(self, request):
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            given = json.loads(request.parameters())
            act, y, text = given.get("act", ""), x, ""
            if act == "sync":
                y = value(ask("double", x).exec())
            elif act == "chain":
                y = value(ask("triple", value(ask("double", x).exec())).exec())
            elif act == "ensemble":
                y = value(ask("chain", x, name="X", wanted=["Y"]).exec(), "Y")
            elif act == "many":
                rows = [r for r in ask("many", x).exec(decoupled=True)]
                text = " ".join(str(len(r.output_tensors())) for r in rows)
                y = sum(value(r) for r in rows if r.output_tensors())
            elif act == "many_error":
                text = told(list(ask("many", x).exec(decoupled=True))[-1 if "last" in given else 0])
            elif act == "one_by_decoupled":
                rows = [r for r in ask("double", x).exec(decoupled=True)]
                text = " ".join(str(len(r.output_tensors())) for r in rows)
            elif act == "tell":
                response = ask("echo", x, wanted=["TOLD"], request_id="inner", correlation_id=9, flags=1, timeout=1000000, parameters={"k": "v", "n": 3}).exec()
                text = value(response, "TOLD")[0, 0].decode()
            elif act == "error":
                text = told(ask(given["model"], -x if given["model"] == "echo" else x[:, :2]).exec())
            elif act == "missing":
                text = told(ask(given["model"], x, model_version=given.get("version", -1)).exec())
            elif act == "output":
                text = told(ask("double", x, wanted=["NOPE"]).exec())
            elif act == "early":
                text = self.early
            elif act == "keep":  # more large outputs than the server lends, of which each must stay as it is
                for turn in range(2):
                    kept = [value(ask("any", np.full((1, 30000), turn + i, np.float32)).exec()) for i in range(20)]
                    text += f"{all((k == turn + i).all() for i, k in enumerate(kept))} "
            elif act == "threads":  # calls of other threads than that of execute
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    y = sum(pool.map(lambda m: value(ask(m, x).exec()), ["double", "triple"] * 8))
            elif act == "ready":
                text = f"{pb_utils.is_model_ready('double')} {pb_utils.is_model_ready('double', '1')} {pb_utils.is_model_ready('double', '7')} {pb_utils.is_model_ready('nobody')}"
            elif act == "reload":
                pb_utils.unload_model("any")
                while pb_utils.is_model_ready("any"):
                    pass
                text = str(pb_utils.is_model_ready("any"))
                pb_utils.load_model("any")
                text += f" {pb_utils.is_model_ready('any')}"
            elif act == "self":
                text = told(ask("bls", x, name="X", wanted=["Y"], parameters={"act": "self"}).exec())
            elif act == "raise":
                raise ValueError(told(ask("nobody", x).exec()))
            tensors = [pb_utils.Tensor("Y", y), pb_utils.Tensor("TEXT", np.array([[text]], np.object_))]
            return pb_utils.InferenceResponse(tensors)
"""
)

# A model of coroutines that calls others side by side.
_GATHER = (
    _HEAD
    + """
    import asyncio


    class TritonPythonModel:
        async def execute(self, requests):
            out = []
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                calls = [
                    pb_utils.InferenceRequest(model_name=m, requested_output_names=["OUTPUT0"], inputs=[pb_utils.Tensor("INPUT0", x)]).async_exec()
                    for m in ["double", "triple"] * 4
                ]
                got = await asyncio.gather(*calls)
                y = sum(pb_utils.get_output_tensor_by_name(r, "OUTPUT0").as_numpy() for r in got)
                out.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))
            return out
"""
)


def ensemble(name: str, inputs: list[Tensor], outputs: list[Tensor], *steps: tuple[str, dict, dict], batch: int = 8, extra: str = "", files=None) -> Model:
    """An ensemble; a step is a model's name, its input map and its output map."""
    text = [f'name: "{name}"', 'platform: "ensemble"', f"max_batch_size: {batch}"]
    text += [f"input {t.text()}" for t in inputs] + [f"output {t.text()}" for t in outputs]
    text.append("ensemble_scheduling {")
    for model, into, out in steps:
        model, _, version = model.partition(":")
        text.append(f'  step {{ model_name: "{model}" model_version: {version or -1}')
        for field, links in (("input_map", into), ("output_map", out)):
            text += [f'    {field} {{ key: "{key}" value: "{value}" }}' for key, value in links.items()]
        text.append("  }")
    text.append("}")
    return Model(name=name, config="\n".join(text) + "\n" + extra, files=files or {})


def link(model: str, source: str, target: str) -> tuple[str, dict, dict]:
    return model, {"INPUT0": source}, {"OUTPUT0": target}


def add_sub(name: str, inputs: tuple[str, str], outputs: dict) -> tuple[str, dict, dict]:
    return name, {"INPUT0": inputs[0], "INPUT1": inputs[1]}, outputs


X, Y = Tensor("X", *FP4), Tensor("Y", *FP4)
A, B, S = Tensor("A", "INT32", (16,)), Tensor("B", "INT32", (16,)), Tensor("S", "INT32", (16,))


def parts() -> list[Model]:
    def scale(name: str, factor: float, **more) -> Model:
        return Model(
            name=name,
            inputs=(Tensor("INPUT0", *FP4),),
            outputs=(Tensor("OUTPUT0", *FP4, more.pop("label", "")),),
            max_batch_size=8,
            versions={1: graphs.scale(factor)},
            extra=TAIL + more.pop("extra", ""),
            **more,
        )

    return [
        scale("double", 2),
        scale("triple", 3, extra="dynamic_batching { }\n"),
        scale("labelled", 1, label='label_filename: "labels.txt" ', files={"labels.txt": "zero\none\ntwo\nthree\n"}),
        models.add_sub("INT32", "add_sub"),
        Model(
            name="concat",
            inputs=(Tensor("INPUT0", "BYTES", (-1,)), Tensor("INPUT1", "BYTES", (-1,))),
            outputs=(Tensor("OUTPUT0", "BYTES", (-1,)),),
            max_batch_size=8,
            versions={1: graphs.string_concat()},
        ),
        Model(
            name="whole",
            inputs=(Tensor("INPUT0", "FP32", (-1, 4)),),
            outputs=(Tensor("OUTPUT0", "FP32", (-1, 4)),),
            versions={1: graphs.scale(10)},
        ),
        Model(
            name="any",
            inputs=(Tensor("INPUT0", "FP32", (-1,)),),
            outputs=(Tensor("OUTPUT0", "FP32", (-1,)),),
            max_batch_size=8,
            versions={1: graphs.identity(models.TYPES["FP32"].onnx, ["batch", "n"])},
        ),
    ]


def ensembles() -> list[Model]:
    t = Tensor("T", "INT32", (16,))
    words = [Tensor(n, "BYTES", (-1,)) for n in ("P", "Q")]
    return [
        ensemble("chain", [X], [Y], link("double", "X", "t"), link("echo", "t", "u"), link("triple", "u", "Y")),
        ensemble("diamond", [A, B], [S, t], add_sub("add_sub", ("A", "B"), {"OUTPUT0": "sum", "OUTPUT1": "T"}), add_sub("add_sub", ("sum", "T"), {"OUTPUT0": "S"})),
        ensemble("outer", [X], [Y], ("chain", {"X": "X"}, {"Y": "t"}), link("double", "t", "Y")),
        ensemble("strings", words, [Tensor("R", "BYTES", (-1,))], add_sub("concat", ("P", "Q"), {"OUTPUT0": "r"}), add_sub("concat", ("r", "P"), {"OUTPUT0": "R"})),
        ensemble("told", [X], [Tensor("WORDS", "BYTES", (1,))], ("echo", {"INPUT0": "X"}, {"TOLD": "WORDS"})),
        ensemble("classes", [X], [Y], link("double", "X", "t"), link("labelled", "t", "Y")),
        ensemble("no_batch", [Tensor("X", "FP32", (-1, 4))], [Tensor("Y", "FP32", (-1, 4))], link("double", "X", "t"), link("whole", "t", "Y"), batch=0),
        ensemble("batch_of_whole", [X], [Y], link("whole", "X", "t"), link("double", "t", "Y")),
        ensemble("optional", [X, Tensor("M", "FP32", (4,), "optional: true ")], [Y], ("maybe", {"INPUT0": "X", "INPUT1": "M"}, {"OUTPUT0": "t"}), link("double", "t", "Y")),
        ensemble("narrow", [Tensor("X", "FP32", (-1,))], [Y], link("any", "X", "t"), link("double", "t", "Y")),
        ensemble("stream", [X], [Y], link("double", "X", "t"), link("many", "t", "u"), link("triple", "u", "Y")),
    ]


def write(repository: pathlib.Path) -> pathlib.Path:
    models.write(repository, *parts(), *ensembles())
    told = 'output { name: "TOLD" data_type: TYPE_STRING dims: [ 1 ] }'
    one = "max_batch_size: 8\ninput { name: \"INPUT0\" data_type: TYPE_FP32 dims: [ 4 ] }\noutput { name: \"OUTPUT0\" data_type: TYPE_FP32 dims: [ 4 ] }\n"
    pymodels.write(repository, "echo", _ECHO, one + told + TAIL)
    pymodels.write(repository, "many", _MANY, one + "model_transaction_policy { decoupled: true }" + TAIL)
    pymodels.write(repository, "maybe", _OPTIONAL, one + 'input { name: "INPUT1" data_type: TYPE_FP32 dims: [ 4 ] optional: true }' + TAIL)
    bls = one.replace("INPUT0", "X").replace("OUTPUT0", "Y").replace("max_batch_size: 8", "max_batch_size: 1")
    pymodels.write(repository, "gather", _GATHER, bls + TAIL)
    pymodels.write(repository, "bls", _BLS, bls + 'output { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }' + TAIL)
    return repository


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
