"""A model of ten lines around a large network: `shoal serve --model bench/gpu/resnet50.py`."""

import shoal


class ResNet50(shoal.Model):
    """ResNet-50 with random weights, in half precision."""

    image = shoal.Input("float32", [3, 224, 224])
    scores = shoal.Output("float32", [1000])
    max_batch = 64
    gpus = [0]

    def load(self):
        import torch
        from torch import nn

        torch.backends.cudnn.benchmark = False
        torch.manual_seed(0)

        class Block(nn.Module):
            def __init__(self, cin, mid, cout, stride):
                super().__init__()
                self.body = nn.Sequential(nn.Conv2d(cin, mid, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU(),
                                          nn.Conv2d(mid, mid, 3, stride, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU(),
                                          nn.Conv2d(mid, cout, 1, bias=False), nn.BatchNorm2d(cout))
                self.skip = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)) if cin != cout or stride > 1 else nn.Identity()

            def forward(self, x):
                return torch.relu(self.body(x) + self.skip(x))

        layers, cin = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
        for mid, n, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(n):
                layers.append(Block(cin, mid, mid * 4, stride if i == 0 else 1))
                cin = mid * 4
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
        self.torch = torch
        self.net = nn.Sequential(*layers).eval().half().cuda()

    def predict(self, image):
        t = self.torch
        with t.inference_mode():
            x = t.from_numpy(image).cuda().half()
            return self.net(x).float().cpu().numpy()
