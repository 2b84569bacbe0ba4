import copy

import torch
from torch import nn


class IncrementalNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.convnet = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Flatten())
        self.feature_dim = width * 16
        self.fc = None

    def update_fc(self, nb_classes):
        fc = nn.Linear(self.feature_dim, nb_classes)
        if self.fc is not None:
            n = self.fc.out_features
            fc.weight.data[:n] = copy.deepcopy(self.fc.weight.data)
            fc.bias.data[:n] = copy.deepcopy(self.fc.bias.data)
        del self.fc
        self.fc = fc

    def extract_vector(self, x):
        return self.convnet(x)

    def forward(self, x):
        features = self.convnet(x)
        return {"features": features, "logits": self.fc(features)}

    def copy(self):
        return copy.deepcopy(self)

    def freeze(self):
        for param in self.parameters():
            param.requires_grad = False
        self.eval()
        return self
