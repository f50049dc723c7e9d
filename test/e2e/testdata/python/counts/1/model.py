"""Metrics of a model's own: does what ACT says and tells the value, or the error."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.counters = pb_utils.MetricFamily(name="e2e_seen", description="How many were seen", kind=pb_utils.MetricFamily.COUNTER)
        self.gauges = pb_utils.MetricFamily(name="e2e_level", description='A "level"', kind=pb_utils.MetricFamily.GAUGE)
        self.histograms = pb_utils.MetricFamily(name="e2e_size", description="Sizes", kind=pb_utils.MetricFamily.HISTOGRAM)
        self.counter = self.counters.Metric(labels={"model": args["model_name"], "kind": 'a "quoted" one'})
        self.gauge = self.gauges.Metric()
        self.histogram = self.histograms.Metric(labels={"part": "x"}, buckets=[0.5, 1, 10])

    def execute(self, requests):
        return [self.one(r) for r in requests]

    def one(self, request):
        act = pb_utils.get_input_tensor_by_name(request, "ACT").as_numpy()[0].decode()
        try:
            said = repr(eval(act, {"pb_utils": pb_utils, "self": self}))
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", np.array([said], dtype=np.object_))])
