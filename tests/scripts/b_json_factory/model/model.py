import torch.nn as nn
import torch.nn.functional as F

from base import BaseModel


class PriceNet(BaseModel):
    def __init__(self, n_features, hidden=32, dropout=0.0):
        super().__init__()
        self.fc1 = nn.Linear(n_features, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 1)
        self.dropout = dropout

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.dropout(F.relu(self.fc2(x)), self.dropout, training=self.training)
        return self.out(x).squeeze(1)
