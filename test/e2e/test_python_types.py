"""Every data type through Python models of both kinds, over both protocols."""

from __future__ import annotations

import numpy as np
import pytest

import clients
import models
import pymodels

# Each model takes and gives every type, INT8 under that name and so on. BF16 has no
# numpy type: Triton's models hand it on by DLPack, and see it no other way.
TRITON = """
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            return [pb_utils.InferenceResponse([self.same(x) for x in r.inputs()]) for r in requests]

        def same(self, x):
            name = x.name()
            assert x.triton_dtype().name == name, x.triton_dtype()
            return pb_utils.Tensor.from_dlpack(name, x) if name == "BF16" else pb_utils.Tensor(name, x.as_numpy())
"""
SHOAL = """
    import shoal

    class Identity(shoal.Model):
        {inputs}

        def predict(self, batch):
            return dict(batch)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = tmp_path_factory.mktemp("types")
    tensors = ", ".join(f'{{ name: "{w}" data_type: {t.config} dims: [ -1 ] }}' for w, t in models.TYPES.items())
    config = f"max_batch_size: 8 input [ {tensors} ] output [ {tensors} ] dynamic_batching {{ }}"
    pymodels.write(repository, "triton", TRITON, config)
    declared = [f'in_{w} = shoal.Input("{w}", [-1], name="{w}"); out_{w} = shoal.Output("{w}", [-1], name="{w}")' for w in models.TYPES]
    pymodels.write(repository, "shoal", SHOAL.format(inputs="\n        ".join(declared)), version="")
    with pymodels.serve(repository) as server:
        yield server.wait_ready(60)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 0)], ids=str)
@pytest.mark.parametrize("model", ["triton", "shoal"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_python_model_gives_back_what_it_got(server, protocol, model, shape):
    library = clients.LIBRARIES[protocol]
    arrays = {
        wire: clients.sample(wire, shape) if 0 not in shape else np.zeros(shape, kind.numpy) for wire, kind in models.TYPES.items()
    }
    with library.InferenceServerClient(getattr(server, protocol)) as client:
        result = client.infer(model, [clients.tensor(library, wire, wire, array) for wire, array in arrays.items()])
    for wire, array in arrays.items():
        got = result.as_numpy(wire)
        assert got.shape == shape, wire
        np.testing.assert_array_equal(got.astype(array.dtype), array, wire)
