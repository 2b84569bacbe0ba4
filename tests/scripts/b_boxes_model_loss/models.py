from __future__ import division

import torch
import torch.nn as nn


class GridDetector(nn.Module):
    """one box per cell of a 4x4 grid: objectness, dx, dy, size, class scores"""

    def __init__(self, n_cls=2, grid=4):
        super().__init__()
        self.n_cls, self.grid = n_cls, grid
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.LeakyReLU(0.1), nn.MaxPool2d(2),
            nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.LeakyReLU(0.1), nn.MaxPool2d(2),
            nn.Conv2d(24, 32, 3, padding=1), nn.BatchNorm2d(32), nn.LeakyReLU(0.1), nn.MaxPool2d(2))
        self.head = nn.Conv2d(32, 4 + n_cls, 1)
        self.bce = nn.BCEWithLogitsLoss()
        self.mse = nn.MSELoss()
        self.ce = nn.CrossEntropyLoss()
        self.seen = 0
        self.metrics = {}

    def build_targets(self, targets, n):
        g = self.grid
        obj = torch.zeros(n, g, g, device=targets.device)
        box = torch.zeros(n, g, g, 3, device=targets.device)
        cls = torch.zeros(n, g, g, dtype=torch.long, device=targets.device)
        b = targets[:, 0].long()
        gx, gy = targets[:, 2] * g, targets[:, 3] * g
        i, j = gx.long().clamp(0, g - 1), gy.long().clamp(0, g - 1)
        obj[b, j, i] = 1
        box[b, j, i] = torch.stack([gx - i, gy - j, targets[:, 4]], 1)
        cls[b, j, i] = targets[:, 1].long()
        return obj, box, cls

    def forward(self, x, targets=None):
        p = self.head(self.body(x)).permute(0, 2, 3, 1)
        conf, box, cls = p[..., 0], torch.sigmoid(p[..., 1:4]), p[..., 4:]
        g = self.grid
        jj, ii = torch.meshgrid(torch.arange(g, device=x.device), torch.arange(g, device=x.device), indexing='ij')
        xy = (box[..., :2] + torch.stack([ii, jj], -1)) / g
        output = torch.cat([xy, box[..., 2:], torch.sigmoid(conf).unsqueeze(-1),
                            cls.argmax(-1, keepdim=True).float()], -1).view(x.size(0), -1, 5)
        if targets is None:
            return output
        obj, tbox, tcls = self.build_targets(targets, x.size(0))
        m = obj.bool()
        loss_conf = self.bce(conf, obj)
        loss_box = self.mse(box[m], tbox[m])
        loss_cls = self.ce(cls[m], tcls[m])
        loss = loss_conf + 5 * loss_box + loss_cls
        self.metrics = {
            'loss': loss.item(), 'conf': loss_conf.item(), 'box': loss_box.item(), 'cls': loss_cls.item(),
            'recall': ((torch.sigmoid(conf) > 0.5) & m).sum().item() / max(m.sum().item(), 1),
        }
        return loss, output
