import torch
import torch.nn as nn


class GradReverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lam):
        ctx.lam = lam
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return -ctx.lam * grad, None


class AdaptNet(nn.Module):
    def __init__(self, n_class):
        super(AdaptNet, self).__init__()
        self.n_class = n_class
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(),
            nn.Flatten())
        self.label_head = nn.Sequential(nn.Linear(24 * 16, 48), nn.ReLU(), nn.Linear(48, n_class))
        self.domain_head = nn.Sequential(nn.Linear(24 * 16, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x, lam=0.0):
        f = self.backbone(x)
        domain = self.domain_head(GradReverse.apply(f, lam))
        return self.label_head(f), domain.squeeze(1)
