"""The models that the tests serve, and the repositories that they lie in.

A Model is written either for Shoal (ONNX files made with the onnx helper, or
the built-in identity backend) or, with the same name and tensors, for the
Python backend of a real tritonserver, so that a test can be run against both.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re

import ml_dtypes
import numpy as np
from onnx import TensorProto

import graphs
import peer


@dataclasses.dataclass(frozen=True)
class DataType:
    """One data type of the protocol by its wire name."""

    wire: str
    config: str
    onnx: int
    numpy: type
    arithmetic: int  # the ONNX type that the CPU can add, reached by a Cast


def _types() -> dict[str, DataType]:
    rows = [
        ("INT8", "TYPE_INT8", TensorProto.INT8, np.int8, TensorProto.INT32),
        ("INT16", "TYPE_INT16", TensorProto.INT16, np.int16, TensorProto.INT32),
        ("INT32", "TYPE_INT32", TensorProto.INT32, np.int32, TensorProto.INT32),
        ("INT64", "TYPE_INT64", TensorProto.INT64, np.int64, TensorProto.INT64),
        ("UINT8", "TYPE_UINT8", TensorProto.UINT8, np.uint8, TensorProto.INT32),
        ("UINT16", "TYPE_UINT16", TensorProto.UINT16, np.uint16, TensorProto.INT32),
        ("UINT32", "TYPE_UINT32", TensorProto.UINT32, np.uint32, TensorProto.INT64),
        ("UINT64", "TYPE_UINT64", TensorProto.UINT64, np.uint64, TensorProto.INT64),
        ("FP16", "TYPE_FP16", TensorProto.FLOAT16, np.float16, TensorProto.FLOAT),
        ("BF16", "TYPE_BF16", TensorProto.BFLOAT16, ml_dtypes.bfloat16, TensorProto.FLOAT),
        ("FP32", "TYPE_FP32", TensorProto.FLOAT, np.float32, TensorProto.FLOAT),
        ("FP64", "TYPE_FP64", TensorProto.DOUBLE, np.float64, TensorProto.DOUBLE),
        ("BOOL", "TYPE_BOOL", TensorProto.BOOL, np.bool_, TensorProto.BOOL),
        ("BYTES", "TYPE_STRING", TensorProto.STRING, np.object_, TensorProto.STRING),
    ]
    return {row[0]: DataType(*row) for row in rows}


TYPES = _types()
NUMERIC = [name for name in TYPES if name not in ("BOOL", "BYTES")]


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One input or output of a configuration; extra is put inside its braces."""

    name: str
    type: str
    dims: tuple[int, ...]
    extra: str = ""

    def text(self) -> str:
        dims = ", ".join(str(d) for d in self.dims)
        return f'{{ name: "{self.name}" data_type: {TYPES[self.type].config} dims: [ {dims} ] {self.extra}}}'


@dataclasses.dataclass(frozen=True)
class Model:
    """A model folder: its configuration, its versions and further files."""

    name: str
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    max_batch_size: int = 0
    versions: dict[int, bytes] = dataclasses.field(default_factory=dict)
    extra: str = ""
    backend: str = "onnxruntime"
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    config: str | None = ""  # "" writes it from the fields, None writes none
    peer: str | dict[int, str] = ""  # what the Python backend does for it, if it can

    def config_text(self, backend: str | None = None) -> str:
        if self.config:
            return self.config
        lines = [f'name: "{self.name}"', f'backend: "{backend or self.backend}"']
        lines.append(f"max_batch_size: {self.max_batch_size}")
        lines += [f"input {t.text()}" for t in self.inputs]
        lines += [f"output {t.text()}" for t in self.outputs]
        return "\n".join(lines) + "\n" + self.extra

    def write(self, repository: pathlib.Path) -> None:
        """Writes the model as Shoal serves it."""
        folder = self._folder(repository)
        if self.config is not None:
            (folder / "config.pbtxt").write_text(self.config_text())
        for version, data in (self.versions or {1: b""}).items():
            (folder / str(version)).mkdir(exist_ok=True)
            if data:
                (folder / str(version) / "model.onnx").write_bytes(data)

    def write_for_peer(self, repository: pathlib.Path) -> None:
        """Writes the model for the Python backend of a real tritonserver."""
        folder = self._folder(repository)
        (folder / "config.pbtxt").write_text(self.config_text("python"))
        acts = self.peer if isinstance(self.peer, dict) else {1: self.peer}
        for version, act in acts.items():
            (folder / str(version)).mkdir()
            (folder / str(version) / "model.py").write_text(peer.source(act))

    def _folder(self, repository: pathlib.Path) -> pathlib.Path:
        folder = repository / self.name
        folder.mkdir(parents=True)
        for name, text in self.files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        return folder


def write(repository: pathlib.Path, *models: Model) -> pathlib.Path:
    """Writes models into a repository and returns its path."""
    repository.mkdir(parents=True, exist_ok=True)
    for model in models:
        model.write(repository)
    return repository


def add_sub(wire: str, name: str = "", max_batch_size: int = 8, extra: str = "") -> Model:
    """OUTPUT0 = INPUT0 + INPUT1 and OUTPUT1 = INPUT0 - INPUT1, 16 wide."""
    t = TYPES[wire]
    lead = ["batch"] if max_batch_size else []
    return Model(
        name=name or f"add_sub_{wire.lower()}",
        inputs=(Tensor("INPUT0", wire, (16,)), Tensor("INPUT1", wire, (16,))),
        outputs=(Tensor("OUTPUT0", wire, (16,)), Tensor("OUTPUT1", wire, (16,))),
        max_batch_size=max_batch_size,
        versions={1: graphs.add_sub(t.onnx, t.arithmetic, lead + [16])},
        extra=extra,
        peer="add_sub",
    )


def identity(wire: str, name: str = "", dims: tuple[int, ...] = (-1, -1), **more) -> Model:
    """OUTPUT0 = INPUT0, of any rank-two shape unless told."""
    shape: list = [f"d{i}" if d < 0 else d for i, d in enumerate(dims)]
    if more.get("max_batch_size"):
        shape = ["batch"] + shape
    return Model(
        name=name or f"identity_{wire.lower()}",
        inputs=(Tensor("INPUT0", wire, dims),),
        outputs=(Tensor("OUTPUT0", wire, dims),),
        versions={1: graphs.identity(TYPES[wire].onnx, shape)},
        peer="identity",
        **more,
    )


def slow(name: str, delay_ms: int, count: int = 1, **more) -> Model:
    """The built-in identity backend, sleeping in every execution."""
    return Model(
        name=name,
        backend="identity",
        inputs=(Tensor("INPUT0", "FP32", (-1,)),),
        outputs=(Tensor("OUTPUT0", "FP32", (-1,)),),
        extra=parameter("execute_delay_ms", delay_ms) + instances(count),
        peer=f"sleep {delay_ms}",
        **more,
    )


def slower(model: Model, times: int) -> Model:
    """The model with executions that sleep so many times as long."""
    longer = re.sub(r'(key: "execute_delay_ms" value { string_value: ")(\d+)', lambda m: m[1] + str(int(m[2]) * times), model.extra)
    return dataclasses.replace(model, extra=longer)


def with_extra(model: Model, extra: str) -> Model:
    """The model with more text in its configuration."""
    return dataclasses.replace(model, extra=model.extra + extra)


def parameter(key: str, value: object) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def instances(count: int) -> str:
    return f"instance_group [ {{ count: {count} kind: KIND_CPU }} ]\n"


def simple(name: str = "simple") -> Model:
    """Triton's own first example, with the settings of the recorded answers."""
    extra = instances(1) + parameter("intra_op_thread_count", 1) + parameter("inter_op_thread_count", 1)
    return add_sub("INT32", name=name, extra=extra)


def labelled() -> Model:
    """An identity with a labels file, for classification; the last class has none."""
    return Model(
        name="labelled",
        inputs=(Tensor("INPUT0", "FP32", (4,)),),
        outputs=(Tensor("OUTPUT0", "FP32", (4,), 'label_filename: "labels.txt" '),),
        max_batch_size=8,
        versions={1: graphs.identity(TensorProto.FLOAT, ["batch", 4])},
        files={"labels.txt": "cat\ndog\nfish\n"},
        peer="identity",
    )


def two_versions(name: str, policy: str) -> Model:
    """Version 1 doubles its input and version 3 triples it."""
    return Model(
        name=name,
        inputs=(Tensor("INPUT0", "FP32", (4,)),),
        outputs=(Tensor("OUTPUT0", "FP32", (4,)),),
        max_batch_size=8,
        versions={v: graphs.scale(factor) for v, factor in ((1, 2.0), (3, 3.0))},
        extra=f"version_policy: {{ {policy} }}\n" if policy else "",
        peer={1: "scale 2", 3: "scale 3"},
    )


def reshaped() -> Model:
    """The client sends [1] a row, the graph takes a plain vector of rows."""
    return Model(
        name="reshaped",
        inputs=(Tensor("INPUT0", "FP32", (1,), "reshape { shape: [ ] } "),),
        outputs=(Tensor("OUTPUT0", "FP32", (1,), "reshape { shape: [ ] } "),),
        max_batch_size=8,
        versions={1: graphs.identity(TensorProto.FLOAT, ["batch"])},
    )


def optional() -> Model:
    """The built-in identity backend with an input that may be left out."""
    return Model(
        name="optional",
        backend="identity",
        inputs=(Tensor("INPUT0", "FP32", (4,)), Tensor("INPUT1", "FP32", (4,), "optional: true ")),
        outputs=(Tensor("OUTPUT0", "FP32", (4,)), Tensor("OUTPUT1", "FP32", (4,))),
        peer="identity_all",
    )


def good() -> list[Model]:
    """Every model of the server that most tests share."""
    return [
        simple(),
        *(add_sub(wire) for wire in NUMERIC),
        *(identity(wire) for wire in TYPES),
        identity("BYTES", name="identity_bytes_batched", dims=(-1,), max_batch_size=4),
        identity("BYTES", name="raw_bytes", dims=(1,)),
        identity("FP32", name="raw_fp32", dims=(-1,), max_batch_size=4),
        Model(
            name="concat",
            inputs=(Tensor("INPUT0", "BYTES", (-1,)), Tensor("INPUT1", "BYTES", (-1,))),
            outputs=(Tensor("OUTPUT0", "BYTES", (-1,)),),
            max_batch_size=8,
            versions={1: graphs.string_concat()},
            peer="concat",
        ),
        Model(
            name="row_sums",
            inputs=(Tensor("INPUT0", "FP32", (-1, -1)),),
            outputs=(Tensor("OUTPUT0", "FP32", (-1,)),),
            max_batch_size=4,
            versions={1: graphs.row_sums()},
        ),
        Model(
            name="nonzero",
            inputs=(Tensor("INPUT0", "FP32", (-1, -1)),),
            outputs=(Tensor("OUTPUT0", "INT64", (2, -1)),),
            versions={1: graphs.nonzero()},
        ),
        Model(
            name="auto",
            versions={1: graphs.add_sub(TensorProto.FLOAT, TensorProto.FLOAT, ["batch", 16])},
            config=None,
        ),
        Model(
            name="auto_fixed",
            versions={1: graphs.add_sub(TensorProto.INT64, TensorProto.INT64, [2, 16])},
            config=None,
        ),
        two_versions("versions_all", "all { }"),
        two_versions("versions_latest", ""),
        two_versions("versions_specific", "specific { versions: [ 1 ] }"),
        reshaped(),
        optional(),
        labelled(),
        add_sub("FP32", name="three_instances", extra=instances(3)),
        slow("slow", 150),
    ]
