"""What the stock gRPC client meets at the server's limits, and what ends one that attacks."""

from __future__ import annotations

import pytest
import tritonclient.grpc as library
from tritonclient.utils import InferenceServerException

import clients


@pytest.mark.parametrize("text", ["x", "é", "%"], ids=["plain", "two bytes", "per cent"])
def test_a_long_error_text_is_cut_and_the_connection_serves_on(grpc_client, text):
    name = text * 20_000
    for _ in range(20):  # above 8 KB the client refuses some at random
        with pytest.raises(InferenceServerException) as caught:
            grpc_client.get_model_metadata(name)
        assert caught.value.status() == "StatusCode.NOT_FOUND"
        message = caught.value.message()
        assert text * 100 in message and "... (cut, " in message, message
        clients.assert_simple(grpc_client.infer("simple", clients.simple_inputs(library)))
