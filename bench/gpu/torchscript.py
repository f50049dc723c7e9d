"""ResNet-50 as TorchScript, an ordinary model of ten lines: `shoal serve --model resnet50_ts=bench/gpu/torchscript.py`.

HALF=1 is half precision; BATCH and INSTANCES are the largest batch and the number of instances."""

import os

import shoal


class ResNet50(shoal.Model):
    image = shoal.Input("float32", [3, 224, 224])
    scores = shoal.Output("float32", [1000])
    max_batch = int(os.environ.get("BATCH", 64))
    instances = int(os.environ.get("INSTANCES", 1))
    gpus = [0]

    def load(self):
        import torch
        import torchvision

        torch.manual_seed(0)
        self.torch, self.half = torch, os.environ.get("HALF") == "1"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        net = torchvision.models.resnet50().eval().cuda()
        example = torch.zeros(1, 3, 224, 224, device="cuda")
        if self.half:
            net, example = net.half(), example.half()
        self.net = torch.jit.freeze(torch.jit.trace(net, example))
        for _ in range(3):  # TorchScript compiles in its first runs
            self.predict(example.float().cpu().numpy())

    def predict(self, image):
        with self.torch.inference_mode():
            x = self.torch.from_numpy(image).cuda(non_blocking=True)
            return self.net(x.half() if self.half else x).float().cpu().numpy()
