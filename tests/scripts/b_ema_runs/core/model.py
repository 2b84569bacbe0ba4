import torch
import torch.nn as nn


def conv(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.SiLU())


class SpotNet(nn.Module):
    def __init__(self, nc=3):
        super().__init__()
        self.body = nn.Sequential(conv(1, 12), conv(12, 16, 2), conv(16, 24, 2))
        self.head = nn.Linear(24 * 25, 2 + nc)

    def forward(self, x):
        p = self.head(self.body(x).flatten(1))
        return p[:, :2].sigmoid(), p[:, 2:]


class ComputeLoss:
    def __init__(self, model):
        h = model.hyp          # attached in train.py
        self.nc = model.nc
        self.box, self.cls = h['box'], h['cls']
        self.ce = nn.CrossEntropyLoss(label_smoothing=h['label_smoothing'])

    def __call__(self, preds, targets):
        xy, logits = preds
        lbox = (xy - targets[:, :2]).abs().mean() * self.box
        lcls = self.ce(logits, targets[:, 2].long()) * self.cls
        bs = xy.shape[0]
        return (lbox + lcls) * bs, torch.stack((lbox, lcls)).detach()
