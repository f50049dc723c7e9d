"""ONNX graphs as bytes, one function per graph."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

# Old enough for every ONNX Runtime that Shoal supports, new enough for
# StringConcat.
OPSET, IR_VERSION = 20, 9


def _model(nodes, inputs, outputs, initializers=()) -> bytes:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, list(initializers))
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString()


def _value(name, type_, shape):
    return helper.make_tensor_value_info(name, type_, shape)


def add_sub(type_: int, arithmetic: int, shape: list) -> bytes:
    """Sum and difference; arithmetic names the type that the work is done in."""
    inputs = [_value("INPUT0", type_, shape), _value("INPUT1", type_, shape)]
    outputs = [_value("OUTPUT0", type_, shape), _value("OUTPUT1", type_, shape)]
    if arithmetic == type_:
        nodes = [
            helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
            helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
        ]
        return _model(nodes, inputs, outputs)
    nodes = [
        helper.make_node("Cast", ["INPUT0"], ["a"], to=arithmetic),
        helper.make_node("Cast", ["INPUT1"], ["b"], to=arithmetic),
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Sub", ["a", "b"], ["difference"]),
        helper.make_node("Cast", ["sum"], ["OUTPUT0"], to=type_),
        helper.make_node("Cast", ["difference"], ["OUTPUT1"], to=type_),
    ]
    return _model(nodes, inputs, outputs)


def identity(type_: int, shape: list) -> bytes:
    node = helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])
    return _model([node], [_value("INPUT0", type_, shape)], [_value("OUTPUT0", type_, shape)])


def scale(factor: float) -> bytes:
    """OUTPUT0 = INPUT0 * factor, rows of four."""
    shape = ["batch", 4]
    constant = numpy_helper.from_array(np.float32(factor), "factor")
    node = helper.make_node("Mul", ["INPUT0", "factor"], ["OUTPUT0"])
    return _model(
        [node],
        [_value("INPUT0", TensorProto.FLOAT, shape)],
        [_value("OUTPUT0", TensorProto.FLOAT, shape)],
        [constant],
    )


def string_concat() -> bytes:
    shape = ["batch", "n"]
    node = helper.make_node("StringConcat", ["INPUT0", "INPUT1"], ["OUTPUT0"])
    return _model(
        [node],
        [_value("INPUT0", TensorProto.STRING, shape), _value("INPUT1", TensorProto.STRING, shape)],
        [_value("OUTPUT0", TensorProto.STRING, shape)],
    )


def row_sums() -> bytes:
    """Sums over the last axis of [batch, a, b]."""
    axis = numpy_helper.from_array(np.array([2], np.int64), "axis")
    node = helper.make_node("ReduceSum", ["INPUT0", "axis"], ["OUTPUT0"], keepdims=0)
    return _model(
        [node],
        [_value("INPUT0", TensorProto.FLOAT, ["batch", "a", "b"])],
        [_value("OUTPUT0", TensorProto.FLOAT, ["batch", "a"])],
        [axis],
    )


def nonzero() -> bytes:
    """The indices of what is not zero: an output whose shape depends on the data."""
    node = helper.make_node("NonZero", ["INPUT0"], ["OUTPUT0"])
    return _model(
        [node],
        [_value("INPUT0", TensorProto.FLOAT, ["a", "b"])],
        [_value("OUTPUT0", TensorProto.INT64, [2, "found"])],
    )


def long_loop() -> bytes:
    """Multiplies a matrix by itself INPUT0 times: a run of any length inside ONNX Runtime."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["x_in", "matrix"], ["x_out"]),
            helper.make_node("Identity", ["go_in"], ["go_out"]),
        ],
        "body",
        [_value("i", TensorProto.INT64, []), _value("go_in", TensorProto.BOOL, []), _value("x_in", TensorProto.FLOAT, [256, 256])],
        [_value("go_out", TensorProto.BOOL, []), _value("x_out", TensorProto.FLOAT, [256, 256])],
    )
    constants = [
        numpy_helper.from_array(np.eye(256, dtype=np.float32), "matrix"),
        numpy_helper.from_array(np.array(True), "go"),
        numpy_helper.from_array(np.array([0], np.int64), "zero"),
    ]
    nodes = [
        helper.make_node("Gather", ["INPUT0", "first"], ["times"]),
        helper.make_node("Loop", ["times", "go", "matrix"], ["product"], body=body),
        helper.make_node("Gather", ["product", "zero"], ["OUTPUT0"]),
    ]
    constants.append(numpy_helper.from_array(np.array(0, np.int64), "first"))
    return _model(nodes, [_value("INPUT0", TensorProto.INT64, [1])], [_value("OUTPUT0", TensorProto.FLOAT, [1, 256])], constants)


def slow_increment(steps: int) -> bytes:
    """OUTPUT0 = INPUT0 + steps, one at a time, rows of four: 10,000 steps take some 10 ms, however many rows."""
    shape = ["batch", 4]
    body = helper.make_graph(
        [
            helper.make_node("Add", ["x_in", "one"], ["x_out"]),
            helper.make_node("Identity", ["go_in"], ["go_out"]),
        ],
        "body",
        [_value("i", TensorProto.INT64, []), _value("go_in", TensorProto.BOOL, []), _value("x_in", TensorProto.FLOAT, shape)],
        [_value("go_out", TensorProto.BOOL, []), _value("x_out", TensorProto.FLOAT, shape)],
    )
    constants = [
        numpy_helper.from_array(np.float32(1), "one"),
        numpy_helper.from_array(np.array(steps, np.int64), "steps"),
        numpy_helper.from_array(np.array(True), "go"),
    ]
    node = helper.make_node("Loop", ["steps", "go", "INPUT0"], ["OUTPUT0"], body=body)
    return _model([node], [_value("INPUT0", TensorProto.FLOAT, shape)], [_value("OUTPUT0", TensorProto.FLOAT, shape)], constants)


def long_constant() -> bytes:
    """Adds a product of constants that takes long: ONNX Runtime computes it when the session is made."""
    size = 2048
    nodes = [helper.make_node("ConstantOfShape", ["size"], ["x0"], value=helper.make_tensor("one", TensorProto.FLOAT, [1], [1e-3]))]
    count = 2000
    nodes += [helper.make_node("MatMul", [f"x{i}", f"x{i}"], [f"x{i + 1}"]) for i in range(count)]
    nodes += [
        helper.make_node("ReduceSum", [f"x{count}"], ["sum"], keepdims=0),
        helper.make_node("Add", ["INPUT0", "sum"], ["OUTPUT0"]),
    ]
    constant = numpy_helper.from_array(np.array([size, size], np.int64), "size")
    return _model(nodes, [_value("INPUT0", TensorProto.FLOAT, [1])], [_value("OUTPUT0", TensorProto.FLOAT, [1])], [constant])
