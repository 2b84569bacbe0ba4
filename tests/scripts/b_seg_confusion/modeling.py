import torch
import torch.nn as nn
import torch.nn.functional as F


def cbr(i, o, dilation=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=dilation, dilation=dilation, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class SegNet(nn.Module):
    def __init__(self, nclass):
        super().__init__()
        self.backbone = nn.Sequential(cbr(3, 12), nn.MaxPool2d(2), cbr(12, 16), cbr(16, 16, 2))
        self.skip = cbr(3, 8)
        self.decoder = nn.Sequential(cbr(24, 16), nn.Conv2d(16, nclass, 1))

    def forward(self, x):
        h = F.interpolate(self.backbone(x), size=x.shape[2:], mode='bilinear', align_corners=True)
        return self.decoder(torch.cat([h, self.skip(x)], 1))

    def get_1x_lr_params(self):
        for p in self.backbone.parameters():
            if p.requires_grad:
                yield p

    def get_10x_lr_params(self):
        for m in (self.skip, self.decoder):
            for p in m.parameters():
                if p.requires_grad:
                    yield p
