import torch.nn as nn


class Encoder(nn.Module):
    def __init__(self, out_dim, width=64):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(16 * 16, width), nn.ReLU())
        self.projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out_dim))

    def forward(self, x):
        return self.projection(self.backbone(x))
