"""The cache of responses."""

from __future__ import annotations

import numpy as np
import pytest

import clients
import graphs
import models
import server

ROW = np.array([[1, 2, 3, 4]], np.float32)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("flag", ["--cache-config=local,size=1000000", "--response-cache-byte-size=1000000"])
def test_a_request_is_computed_once(serve, protocol, flag):
    model = models.Model(
        name="scaled",
        inputs=(models.Tensor("INPUT0", "FP32", (4,)),),
        outputs=(models.Tensor("OUTPUT0", "FP32", (4,)),),
        max_batch_size=8,
        versions={1: graphs.scale(2.0)},
        extra="response_cache { enable: true }\n",
    )
    running = serve(flag, wanted=(model,)).wait_ready()
    library = clients.LIBRARIES[protocol]
    client = library.InferenceServerClient(getattr(running, protocol))
    for row in (ROW, ROW, ROW + 1, ROW):
        answer = client.infer("scaled", [clients.tensor(library, "INPUT0", "FP32", row)])
        np.testing.assert_array_equal(answer.as_numpy("OUTPUT0"), row * 2)
    got = client.get_inference_statistics("scaled", **({"as_json": True} if protocol == "grpc" else {}))["model_stats"][0]
    counts = {name: int(got["inference_stats"][name]["count"]) for name in ("success", "queue", "compute_infer", "cache_hit", "cache_miss")}
    assert counts == {"success": 4, "queue": 4, "compute_infer": 2, "cache_hit": 2, "cache_miss": 2}
    assert int(got["execution_count"]) == 2
    metrics = server.get(running.metrics, "/metrics").text
    assert 'nv_cache_num_hits_per_model{model="scaled",version="1"} 2' in metrics
    assert 'nv_cache_num_misses_per_model{model="scaled",version="1"} 2' in metrics
    for name, value in (("entries", 2), ("hits", 2), ("misses", 2), ("lookups", 4), ("evictions", 0)):
        assert f"nv_cache_num_{name} {value}\n" in metrics
    assert all(f"\nnv_cache_{name} " in metrics for name in ("util", "lookup_duration", "insertion_duration"))
