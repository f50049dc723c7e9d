"""Labels each pixel of images."""

from ts.torch_handler.vision_handler import VisionHandler


class ImageSegmenter(VisionHandler):
    """Answers with the class and the probability of each pixel."""

    @property
    def image_processing(self):
        """Resize, crop and normalize as ImageNet's models expect."""
        from torchvision import transforms

        normalize = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
        return transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(), normalize])

    def postprocess(self, data):
        """The most likely class of each pixel and its probability."""
        import torch

        probabilities = torch.nn.functional.softmax(data["out"], dim=1)
        values, classes = torch.max(probabilities, dim=1, keepdim=True)
        return torch.cat((classes.type(values.dtype), values), dim=1).permute(0, 2, 3, 1).tolist()
