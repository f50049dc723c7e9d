"""What a handler knows about its model, its requests and their answers."""

from mms import context as _base
from mms.context import RequestProcessor

__all__ = ["Context", "RequestProcessor"]


class Context(_base.Context):
    """The context of TorchServe: that of Multi Model Server and a few members more."""

    def __init__(self, model_name, model_dir, manifest, batch_size, gpu, mms_version, limit_max_image_pixels=True, **more):
        super().__init__(model_name, model_dir, manifest, batch_size, gpu, mms_version, limit_max_image_pixels=limit_max_image_pixels, **more)
        self._limit_max_image_pixels = limit_max_image_pixels
        self.model_yaml_config = {}
        self.stopping_criteria = None
        self.cl_socket = None

    def get_sequence_id(self, idx):
        """The id of the sequence that a request belongs to."""
        return self.request_processor[idx].get_request_property(self.header_key_sequence_id)
