"""The base of handlers for images."""

import abc
import base64
import io

from ts.torch_handler.base_handler import BaseHandler


class VisionHandler(BaseHandler, abc.ABC):
    """Makes tensors of images."""

    def initialize(self, context):
        """Load the model, and set the limit of image sizes."""
        super().initialize(context)
        if not context.system_properties.get("limit_max_image_pixels", True):
            from PIL import Image

            Image.MAX_IMAGE_PIXELS = None

    def preprocess(self, data):
        """Make one tensor of the requests' images: files, base64 texts or lists of numbers."""
        import torch
        from PIL import Image

        images = []
        for row in data:
            image = row.get("data") or row.get("body")
            if isinstance(image, str):
                image = base64.b64decode(image)
            if isinstance(image, (bytearray, bytes)):
                image = self.image_processing(Image.open(io.BytesIO(image)))
            else:
                image = torch.FloatTensor(image)
            images.append(image)
        return torch.stack(images).to(self.device)
