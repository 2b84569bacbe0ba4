import torch.nn as nn


class ConvSmall(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                               nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU())
        self.out = nn.Linear(24 * 16, num_classes)

    def forward(self, x):
        return self.out(self.f(x).flatten(1))


class Mlp(nn.Sequential):
    def __init__(self, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, num_classes))


def make_net(name, num_classes):
    return globals()[name](num_classes)
