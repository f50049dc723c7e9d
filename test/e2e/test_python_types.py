"""Every data type through Python models of both kinds, over both protocols."""

from __future__ import annotations

import numpy as np
import pytest

import clients
import models
import pymodels

# BF16 has no numpy type: Triton's models hand it on by DLPack, and see it no other way.
TRITON = """
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            return [self.one(r) for r in requests]

        def one(self, request):
            (x,) = request.inputs()
            assert x.triton_dtype().name == "{wire}", x.triton_dtype()
            y = pb_utils.Tensor.from_dlpack("OUTPUT0", x) if "{wire}" == "BF16" else pb_utils.Tensor("OUTPUT0", x.as_numpy())
            return pb_utils.InferenceResponse([y])
"""
TENSORS = """
    max_batch_size: 8
    input [ {{ name: "INPUT0" data_type: {config} dims: [ -1 ] }} ]
    output [ {{ name: "OUTPUT0" data_type: {config} dims: [ -1 ] }} ]
    dynamic_batching {{ }}
"""
SHOAL = """
    import shoal

    class Identity(shoal.Model):
        INPUT0 = shoal.Input("{wire}", [-1])
        OUTPUT0 = shoal.Output("{wire}", [-1])

        def predict(self, INPUT0):
            return INPUT0
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = tmp_path_factory.mktemp("types")
    for wire, kind in models.TYPES.items():
        pymodels.write(repository, f"triton_{wire.lower()}", TRITON.format(wire=wire), TENSORS.format(config=kind.config))
        pymodels.write(repository, f"shoal_{wire.lower()}", SHOAL.format(wire=wire), version="")
    with pymodels.serve(repository) as server:
        yield server.wait_ready(120)


@pytest.fixture(scope="module")
def client_of(server):
    made = {p: library.InferenceServerClient(getattr(server, p)) for p, library in clients.LIBRARIES.items()}
    yield made
    for client in made.values():
        client.close()


@pytest.mark.parametrize("wire", models.TYPES)
@pytest.mark.parametrize("kind", ["triton", "shoal"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_python_model_gives_back_what_it_got(client_of, protocol, kind, wire):
    for shape in ((1, 1), (3, 5), (2, 0)):
        array = clients.sample(wire, shape) if 0 not in shape else np.zeros(shape, models.TYPES[wire].numpy)
        inputs = [clients.tensor(clients.LIBRARIES[protocol], "INPUT0", wire, array)]
        got = client_of[protocol].infer(f"{kind}_{wire.lower()}", inputs).as_numpy("OUTPUT0")
        assert got.shape == shape
        np.testing.assert_array_equal(got.astype(array.dtype), array)
