import torch
import torch.nn as nn
import torch.nn.functional as F


def pdist(a, b, eps=1e-12):
    prod = a @ b.t()
    res = a.pow(2).sum(1).unsqueeze(1) + b.pow(2).sum(1).unsqueeze(0) - 2 * prod
    return res.clamp(min=eps).sqrt()


class BatchHardTriplet(nn.Module):
    def __init__(self, margin=0.3):
        super().__init__()
        self.margin = margin
        self.ranking_loss = nn.MarginRankingLoss(margin=margin)

    def forward(self, emb, labels):
        d = pdist(emb, emb)
        same = labels[:, None] == labels[None, :]
        hardest_pos = (d * same.float()).max(1)[0]
        hardest_neg = (d + 1e5 * same.float()).min(1)[0]
        loss = self.ranking_loss(hardest_neg, hardest_pos, torch.ones_like(hardest_neg))
        frac = (hardest_pos + self.margin > hardest_neg).float().mean()
        return loss, frac
