"""Base classes of handlers of version 0.4."""


class ModelService:
    """Loads a model and answers requests."""

    def __init__(self, model_name=None, model_dir=None, manifest=None, gpu=None):
        self.model_name, self.model_dir, self.manifest, self.gpu = model_name, model_dir, manifest, gpu
        self.ctx = None

    def initialize(self, context):
        """Read the model's place from the context."""
        self.model_name = context.model_name
        self.model_dir = context.system_properties.get("model_dir")
        self.gpu = context.system_properties.get("gpu_id")
        self.manifest = context.manifest

    def inference(self, data):
        """Answer the requests."""
        raise NotImplementedError


class SingleNodeService(ModelService):
    """A service with the three usual steps."""

    def inference(self, data):
        """Preprocess, infer, postprocess."""
        return self._postprocess(self._inference(self._preprocess(data)))

    def handle(self, data, context):
        """Answer the requests one by one."""
        return [self.inference(list(row.values())) for row in data]

    def _preprocess(self, data):
        return data

    def _inference(self, data):
        raise NotImplementedError

    def _postprocess(self, data):
        return data
