"""Finds objects in images."""

from ts.torch_handler.vision_handler import VisionHandler


class ObjectDetector(VisionHandler):
    """Answers with boxes, labels and scores above a threshold."""

    threshold = 0.5

    @property
    def image_processing(self):
        """Make a tensor of an image."""
        from torchvision import transforms

        return transforms.Compose([transforms.ToTensor()])

    def postprocess(self, data):
        """The objects of each image."""
        out = []
        for found in data:
            boxes, labels, scores = (found[k].tolist() for k in ("boxes", "labels", "scores"))
            names = [self.mapping.get(str(c), str(c)) if self.mapping else str(c) for c in labels]
            out.append([{n: b, "score": s} for n, b, s in zip(names, boxes, scores) if s >= self.threshold])
        return out
