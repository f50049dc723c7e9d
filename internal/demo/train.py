"""Makes the models of the demo repository.

Trains a small network on scikit-learn's bundled pictures of handwritten digits
and writes it, and an add_sub model like Triton's `simple`, as ONNX files into
repository/ beside this script. It takes a few seconds:

    pip install scikit-learn onnx
    python3 internal/demo/train.py

The results are committed, since they are embedded in the binary.
"""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

REPOSITORY = pathlib.Path(__file__).parent / "repository"


def save(graph: onnx.GraphProto, name: str) -> None:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="shoal")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    path = REPOSITORY / name / "1" / "model.onnx"
    path.write_bytes(model.SerializeToString())
    print(f"{path.relative_to(REPOSITORY.parent)}: {path.stat().st_size:,} bytes")


def digits() -> None:
    data = load_digits()
    train_x, test_x, train_y, test_y = train_test_split(
        data.data.astype(np.float32), data.target, test_size=0.25, random_state=7, stratify=data.target
    )
    net = MLPClassifier(hidden_layer_sizes=(64,), max_iter=400, random_state=7)
    net.fit(train_x / 16, train_y)
    print(f"digits: accuracy {net.score(test_x / 16, test_y):.3f} on {len(test_y)} held-out pictures")

    # The pixels are 0 to 16, as the data set has them; the scale goes into the first layer.
    weights = [net.coefs_[0] / 16, net.intercepts_[0], net.coefs_[1], net.intercepts_[1]]
    names = ["w1", "b1", "w2", "b2"]
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["pixels", "w1", "b1"], ["hidden"]),
            helper.make_node("Relu", ["hidden"], ["active"]),
            helper.make_node("Gemm", ["active", "w2", "b2"], ["logits"]),
            helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
            helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0),
        ],
        "digits",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", 64])],
        [
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10]),
            helper.make_tensor_value_info("label", TensorProto.INT64, ["batch"]),
        ],
        [numpy_helper.from_array(w.astype(np.float32), n) for w, n in zip(weights, names)],
    )
    save(graph, "digits")
    sample = data.data[0].astype(int).tolist()
    print(f"a picture of a {data.target[0]}: {sample}")


def add_sub() -> None:
    def info(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.INT32, ["batch", 16])

    graph = helper.make_graph(
        [
            helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
            helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
        ],
        "add_sub",
        [info("INPUT0"), info("INPUT1")],
        [info("OUTPUT0"), info("OUTPUT1")],
    )
    save(graph, "add_sub")


if __name__ == "__main__":
    digits()
    add_sub()
