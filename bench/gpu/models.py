"""Write the model repository of the measurements: models.py FOLDER.

text_recognition is the tutorial's recogniser (None-ResNet-None-CTC) and resnet50 is ResNet-50, both with random weights and the
convolutions' normalisation folded in, as an export does."""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


# The tutorial's configuration: without dynamic_batching there is none.
RECOGNISER = """name: "text_recognition"
backend: "onnxruntime"
max_batch_size: 8
input { name: "input.1" data_type: TYPE_FP32 dims: [ 1, 32, 100 ] }
output { name: "308" data_type: TYPE_FP32 dims: [ 26, 37 ] }
"""


class Net:
    """A graph of convolutions."""

    def __init__(self):
        self.nodes, self.weights, self.rng, self.n = [], [], np.random.default_rng(0), 0

    def add(self, op, inputs, out=None, **attrs):
        self.n += 1
        out = out or f"t{self.n}"
        self.nodes.append(helper.make_node(op, inputs, [out], **attrs))
        return out

    def weight(self, array):
        self.n += 1
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), f"w{self.n}"))
        return f"w{self.n}"

    def conv(self, x, cin, cout, kernel, stride=(1, 1), pad=(0, 0), relu=True, gain=2.0):
        scale = np.sqrt(gain / (cin * kernel * kernel))
        w = self.weight(self.rng.standard_normal((cout, cin, kernel, kernel), dtype=np.float32) * scale)
        b = self.weight(self.rng.standard_normal(cout, dtype=np.float32) * 0.05)
        x = self.add("Conv", [x, w, b], kernel_shape=[kernel, kernel], strides=list(stride), pads=[*pad, *pad])
        return self.add("Relu", [x]) if relu else x

    def pool(self, x, kernel, stride, pad):
        return self.add("MaxPool", [x], kernel_shape=[kernel, kernel], strides=list(stride), pads=[*pad, *pad])

    def linear(self, x, cin, cout, out):
        w = self.weight(self.rng.standard_normal((cin, cout), dtype=np.float32) / np.sqrt(cin))
        b = self.weight(self.rng.standard_normal(cout, dtype=np.float32) * 0.05)
        return self.add("Add", [self.add("MatMul", [x, w]), b], out)

    def save(self, folder, name, config, x, dims, y, out):
        value = helper.make_tensor_value_info
        graph = helper.make_graph(self.nodes, name, [value(x, TensorProto.FLOAT, ["N", *dims])], [value(y, TensorProto.FLOAT, ["N", *out])], self.weights)
        version = pathlib.Path(folder) / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), version / "model.onnx")
        (version.parent / "config.pbtxt").write_text(config)


def basic(net, x, cin, cout, blocks):
    for _ in range(blocks):
        y = net.conv(x, cin, cout, 3, pad=(1, 1))
        y = net.conv(y, cout, cout, 3, pad=(1, 1), relu=False, gain=0.2)
        skip = x if cin == cout else net.conv(x, cin, cout, 1, relu=False, gain=1.0)
        x, cin = net.add("Relu", [net.add("Add", [y, skip])]), cout
    return x


def recogniser(folder):
    net = Net()
    x = net.conv("input.1", 1, 32, 3, pad=(1, 1))
    x = net.conv(x, 32, 64, 3, pad=(1, 1))
    x = basic(net, net.pool(x, 2, (2, 2), (0, 0)), 64, 128, 1)
    x = net.conv(x, 128, 128, 3, pad=(1, 1))
    x = basic(net, net.pool(x, 2, (2, 2), (0, 0)), 128, 256, 2)
    x = net.conv(x, 256, 256, 3, pad=(1, 1))
    x = basic(net, net.pool(x, 2, (2, 1), (0, 1)), 256, 512, 5)
    x = basic(net, net.conv(x, 512, 512, 3, pad=(1, 1)), 512, 512, 3)
    x = net.conv(x, 512, 512, 2, (2, 1), (0, 1))
    x = net.conv(x, 512, 512, 2)
    x = net.add("ReduceMean", [net.add("Transpose", [x], perm=[0, 3, 1, 2])], axes=[3], keepdims=0)
    net.linear(x, 512, 37, "308")
    net.save(folder, "text_recognition", RECOGNISER, "input.1", [1, 32, 100], "308", [26, 37])


def resnet50(folder):
    net = Net()
    x = net.pool(net.conv("image", 3, 64, 7, (2, 2), (3, 3)), 3, (2, 2), (1, 1))
    cin = 64
    for mid, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(blocks):
            s = stride if i == 0 else 1
            y = net.conv(x, cin, mid, 1)
            y = net.conv(y, mid, mid, 3, (s, s), (1, 1))
            y = net.conv(y, mid, 4 * mid, 1, relu=False, gain=0.2)
            skip = x if i else net.conv(x, cin, 4 * mid, 1, (s, s), relu=False, gain=1.0)
            x, cin = net.add("Relu", [net.add("Add", [y, skip])]), 4 * mid
    x = net.add("Flatten", [net.add("GlobalAveragePool", [x])])
    net.linear(x, 2048, 1000, "scores")
    net.save(folder, "resnet50", 'name: "resnet50"\nbackend: "onnxruntime"\nmax_batch_size: 64\ndynamic_batching { }\n', "image", [3, 224, 224], "scores", [1000])


if __name__ == "__main__":
    recogniser(sys.argv[1])
    resnet50(sys.argv[1])
