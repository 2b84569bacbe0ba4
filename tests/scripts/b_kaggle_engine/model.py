import torch
import torch.nn as nn


class TabularModel(nn.Module):
    def __init__(self, nfeatures, nlayers=2, hidden=64, dropout=0.2):
        super().__init__()
        layers = []
        for _ in range(nlayers):
            layers.append(nn.Linear(nfeatures if len(layers) == 0 else hidden, hidden))
            layers.append(nn.BatchNorm1d(hidden))
            layers.append(nn.Dropout(dropout))
            layers.append(nn.ReLU())
        layers.append(nn.Linear(hidden, 1))
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)
