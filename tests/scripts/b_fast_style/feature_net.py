from collections import namedtuple

import torch


class FeatureNet(torch.nn.Module):
    """two slices of fixed filters in place of a pretrained VGG"""

    def __init__(self, requires_grad=False):
        super(FeatureNet, self).__init__()
        g = torch.Generator().manual_seed(16)
        self.slice1 = torch.nn.Sequential(torch.nn.Conv2d(3, 12, 3, padding=1), torch.nn.ReLU())
        self.slice2 = torch.nn.Sequential(torch.nn.MaxPool2d(2), torch.nn.Conv2d(12, 24, 3, padding=1), torch.nn.ReLU())
        for p in self.parameters():
            p.data = torch.randn(p.shape, generator=g) * 0.15
            if not requires_grad:
                p.requires_grad = False

    def forward(self, X):
        h1 = self.slice1(X)
        h2 = self.slice2(h1)
        return namedtuple("Outputs", ["relu1", "relu2"])(h1, h2)
