"""Classifies images."""

from ts.torch_handler.vision_handler import VisionHandler
from ts.utils.util import map_class_to_label


class ImageClassifier(VisionHandler):
    """Answers with the most likely classes."""

    topk = 5

    @property
    def image_processing(self):
        """Resize, crop and normalize as ImageNet's models expect."""
        from torchvision import transforms

        normalize = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
        return transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(), normalize])

    def set_max_result_classes(self, topk):
        """Set how many classes an answer has."""
        self.topk = topk

    def postprocess(self, data):
        """The most likely classes with their probabilities."""
        import torch

        probabilities = torch.nn.functional.softmax(data, dim=1)
        values, classes = torch.topk(probabilities, min(self.topk, probabilities.shape[1]), dim=1)
        return map_class_to_label(values.tolist(), self.mapping, classes.tolist())
