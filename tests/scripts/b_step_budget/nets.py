import torch
import torch.nn as nn


class SeqCounter(nn.Module):
    def __init__(self, vocab, n_out, dim=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(2 * dim, dim)
        self.out = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, n_out))

    def forward(self, x):
        e = self.emb(x)
        first = e[:, :1].expand_as(e[:, 1:])
        h = torch.relu(self.mix(torch.cat([e[:, 1:], first * e[:, 1:]], -1)))
        return self.out(h.sum(1))
