import torch
import torch.nn as nn


def pairwise(e):
    dot = e @ e.t()
    sq = dot.diag()
    d = sq[:, None] - 2 * dot + sq[None]
    return d.clamp(min=1e-12).sqrt()


def hardest(e, y):
    d = pairwise(e)
    same = y[:, None] == y[None]
    pos = d.masked_fill(~same, -1.0).max(1)[0]
    neg = d.masked_fill(same, 1e9).min(1)[0]
    return pos, neg


class BatchHardTriplet(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, e, y):
        pos, neg = hardest(e, y)
        return (pos - neg + self.margin).clamp(min=0).mean()


def hardness(e, y, margin):
    pos, neg = hardest(e, y)
    return (pos - neg + margin > 0).float().mean().item()
