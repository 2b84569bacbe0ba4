import torch.nn as nn


class Cnn(nn.Module):
    def __init__(self, dropout, classes):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Flatten(), nn.Dropout(dropout), nn.Linear(256, classes))

    def forward(self, x):
        return self.layers(x)
