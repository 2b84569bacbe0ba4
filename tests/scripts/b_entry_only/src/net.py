# -*- coding: utf-8 -*-
import torch.nn as nn


class WDCNN(nn.Module):
    """第一层用大卷积核"""

    def __init__(self, num_classes=4):
        super(WDCNN, self).__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, 16, 17, stride=2, padding=8), nn.BatchNorm1d(16), nn.ReLU(),
            nn.Conv1d(16, 32, 3, padding=1), nn.BatchNorm1d(32), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(32, 32, 3, padding=1), nn.BatchNorm1d(32), nn.ReLU(), nn.AdaptiveMaxPool1d(4))
        self.fc = nn.Linear(128, num_classes)

    def forward(self, x):
        x = self.features(x)
        return self.fc(x.view(x.size(0), -1))
