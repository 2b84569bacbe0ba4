''' Attention and feed-forward, each with its residual '''
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, n_head, d_model, dropout=0.1):
        super().__init__()
        assert d_model % n_head == 0
        self.n_head = n_head
        self.d_k = d_model // n_head
        self.qs = nn.Linear(d_model, d_model, bias=False)
        self.ks = nn.Linear(d_model, d_model, bias=False)
        self.vs = nn.Linear(d_model, d_model, bias=False)
        self.fc = nn.Linear(d_model, d_model, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.layer_norm = nn.LayerNorm(d_model, eps=1e-6)

    def forward(self, q, k, v, mask=None):
        b, residual = q.size(0), q
        heads = [w(x).view(b, -1, self.n_head, self.d_k).transpose(1, 2)
                 for w, x in ((self.qs, q), (self.ks, k), (self.vs, v))]
        attn = heads[0] @ heads[1].transpose(2, 3) / self.d_k ** 0.5
        if mask is not None:
            attn = attn.masked_fill(mask.unsqueeze(1) == 0, -1e9)
        attn = self.dropout(F.softmax(attn, dim=-1))
        out = (attn @ heads[2]).transpose(1, 2).reshape(b, residual.size(1), -1)
        return self.layer_norm(self.dropout(self.fc(out)) + residual)


class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_in, d_hid, dropout=0.1):
        super().__init__()
        self.w_1 = nn.Linear(d_in, d_hid)
        self.w_2 = nn.Linear(d_hid, d_in)
        self.layer_norm = nn.LayerNorm(d_in, eps=1e-6)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.layer_norm(x + self.dropout(self.w_2(F.relu(self.w_1(x)))))


class EncoderLayer(nn.Module):
    def __init__(self, d_model, d_inner, n_head, dropout=0.1):
        super().__init__()
        self.slf_attn = MultiHeadAttention(n_head, d_model, dropout)
        self.pos_ffn = PositionwiseFeedForward(d_model, d_inner, dropout)

    def forward(self, x, mask=None):
        return self.pos_ffn(self.slf_attn(x, x, x, mask))


class DecoderLayer(nn.Module):
    def __init__(self, d_model, d_inner, n_head, dropout=0.1):
        super().__init__()
        self.slf_attn = MultiHeadAttention(n_head, d_model, dropout)
        self.enc_attn = MultiHeadAttention(n_head, d_model, dropout)
        self.pos_ffn = PositionwiseFeedForward(d_model, d_inner, dropout)

    def forward(self, x, memory, slf_mask=None, enc_mask=None):
        x = self.slf_attn(x, x, x, slf_mask)
        return self.pos_ffn(self.enc_attn(x, memory, memory, enc_mask))
