"""The classification extension over HTTP and gRPC."""

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

import clients

SCORES = np.array([[0.5, 8.25, -1.0, 3.0], [9.0, 1.0, 2.0, 10.5]], np.float32)


@pytest.fixture(params=["http", "grpc"])
def classify(request, http_client, grpc_client):
    """A function that classifies with either client and returns the strings."""
    library = clients.LIBRARIES[request.param]
    client = {"http": http_client, "grpc": grpc_client}[request.param]

    def run(model, wire, array, count, name="INPUT0", **more):
        inputs = [clients.tensor(library, name, wire, array)]
        if model == "simple":
            inputs = clients.pair(library, wire, array, array)
        outputs = [library.InferRequestedOutput("OUTPUT0", class_count=count, **more)]
        got = client.infer(model, inputs, outputs=outputs).as_numpy("OUTPUT0")
        return [[c.decode() if isinstance(c, bytes) else c for c in row] for row in got]

    return run


@pytest.mark.peer
def test_the_largest_come_first_with_their_labels(classify):
    assert classify("labelled", "FP32", SCORES, 2) == [
        ["8.250000:1:dog", "3.000000:3"],
        ["10.500000:3", "9.000000:0:cat"],
    ]


@pytest.mark.peer
def test_more_classes_than_there_are_gives_all(classify):
    got = classify("labelled", "FP32", SCORES[:1], 1000)
    assert got == [["8.250000:1:dog", "3.000000:3", "0.500000:0:cat", "-1.000000:2:fish"]]


@pytest.mark.peer
def test_integers_are_printed_plain(classify):
    assert classify("simple", "INT32", clients.RAMP, 3) == [["30:15", "28:14", "26:13"]]


@pytest.mark.peer
def test_without_batching_the_whole_tensor_is_one_row(http_client):
    library = clients.LIBRARIES["http"]
    inputs = [clients.tensor(library, "INPUT0", "FP64", np.array([[1.0, 2.5], [7.0, 3.0]]))]
    outputs = [library.InferRequestedOutput("OUTPUT0", class_count=2)]
    got = http_client.infer("identity_fp64", inputs, outputs=outputs)
    assert got.get_output("OUTPUT0")["shape"] == [2]
    assert got.as_numpy("OUTPUT0").ravel().tolist() == [b"7.000000:2", b"3.000000:3"]


@pytest.mark.peer
def test_classes_as_json(target):
    request = {
        "inputs": [{"name": "INPUT0", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 0, 0]}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 2}}],
    }
    answer = clients.infer_json(target.http, request, model="labelled")
    want = '"outputs":[{"name":"OUTPUT0","datatype":"BYTES","shape":[1,2],"data":["2.000000:1:dog","1.000000:0:cat"]}]}'
    assert answer.text.endswith(want), answer.text


# The original dies of the last of these.
@pytest.mark.parametrize("wire", ["FP16", "BOOL", "BF16", "BYTES"])
def test_types_without_an_order_are_refused(classify, wire):
    with pytest.raises(InferenceServerException) as caught:
        classify(f"identity_{wire.lower()}", wire, clients.sample(wire, (1, 3)), 1)
    want = f"class result not available for output due to unsupported type '{wire}'"
    assert want in caught.value.message()
