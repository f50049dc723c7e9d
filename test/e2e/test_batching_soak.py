"""64 callers of four kinds on two instances with mixed shapes: every answer belongs to its question.

SOAK_SECONDS sets how long; the full run has 20.
"""

import os

import graphs
import models
from soak import KINDS, Soak
from stage import batching

SECONDS = float(os.environ.get("SOAK_SECONDS", "5"))
EXTRA = batching("preferred_batch_size: [ 8, 16 ] max_queue_delay_microseconds: 5000") + models.instances(2)

MODELS = [
    models.Model(
        name="sums",
        inputs=(models.Tensor("INPUT0", "FP32", (-1, -1)),),
        outputs=(models.Tensor("OUTPUT0", "FP32", (-1,)),),
        max_batch_size=16,
        versions={1: graphs.row_sums()},
        extra=EXTRA,
    ),
    models.Model(
        name="strings",
        inputs=(models.Tensor("INPUT0", "BYTES", (-1,)), models.Tensor("INPUT1", "BYTES", (-1,))),
        outputs=(models.Tensor("OUTPUT0", "BYTES", (-1,)),),
        max_batch_size=16,
        versions={1: graphs.string_concat()},
        extra=EXTRA,
    ),
    models.add_sub("INT32", name="arithmetic", max_batch_size=16, extra=EXTRA),
]


def test_every_answer_belongs_to_its_question(stage, capsys):
    for model in MODELS:
        stage.watch(model.name)
    soak = Soak(stage.http, stage.grpc, SECONDS)
    soak.run(64)
    stats = {m.name: stage.stats(m.name) for m in MODELS}
    batches = {name: s["inference_count"] / max(1, s["execution_count"]) for name, s in stats.items()}
    with capsys.disabled():
        print(f"\nsoak of {SECONDS:g} s: answered {dict(soak.answered)}, rows a batch", end=" ")
        print({name: round(mean, 1) for name, mean in batches.items()})
    assert soak.asked == soak.answered
    assert set(soak.answered) == set(KINDS)
    served = sum(s["inference_stats"]["success"]["count"] for s in stats.values())
    assert served == soak.answered.total(), "the server counts other requests than the callers"
    assert sum(s["inference_stats"]["fail"]["count"] for s in stats.values()) == 0
    assert all(stage.pending(name) == 0 for name in stats)
    # Two rows are sent on average: a server that does not batch has no more than that.
    assert batches["arithmetic"] > 2.5, "nothing was batched, so nothing was tried"
