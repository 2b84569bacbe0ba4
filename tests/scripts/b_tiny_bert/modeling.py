import math

import torch
from torch import nn


class TinyConfig:
    def __init__(self, vocab_size, hidden_size=32, layers=2, heads=4, max_len=40, dropout=0.1, num_labels=2):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.layers = layers
        self.heads = heads
        self.max_len = max_len
        self.dropout = dropout
        self.num_labels = num_labels


class Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=0)
        self.position_embeddings = nn.Embedding(config.max_len, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=1e-12)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, input_ids):
        pos = torch.arange(input_ids.size(1), dtype=torch.long, device=input_ids.device)
        x = self.word_embeddings(input_ids) + self.position_embeddings(pos).unsqueeze(0)
        return self.dropout(self.LayerNorm(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm1 = nn.LayerNorm(config.hidden_size)
        self.ffn = nn.Sequential(nn.Linear(config.hidden_size, 64), nn.GELU(), nn.Linear(64, config.hidden_size))
        self.LayerNorm2 = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, mask):
        b, t, d = x.size()
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        split = lambda z: z.view(b, t, self.heads, d // self.heads).transpose(1, 2)
        att = split(q) @ split(k).transpose(-1, -2) / math.sqrt(d // self.heads)
        att = (att + mask).softmax(-1)
        y = (self.dropout(att) @ split(v)).transpose(1, 2).reshape(b, t, d)
        x = self.LayerNorm1(x + self.dropout(self.proj(y)))
        return self.LayerNorm2(x + self.dropout(self.ffn(x)))


class TinyForSequenceClassification(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.num_labels = config.num_labels
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_ids, attention_mask, labels=None):
        mask = (1.0 - attention_mask[:, None, None, :].float()) * -10000.0
        x = self.embeddings(input_ids)
        for layer in self.layers:
            x = layer(x, mask)
        logits = self.classifier(torch.tanh(self.pooler(x[:, 0])))
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.view(-1, self.num_labels), labels.view(-1))
            return loss, logits
        return (logits,)
