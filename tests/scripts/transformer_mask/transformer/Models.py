import numpy as np
import torch
import torch.nn as nn
from transformer import Constants
from transformer.Layers import EncoderLayer, DecoderLayer


def get_pad_mask(seq, pad_idx):
    return (seq != pad_idx).unsqueeze(-2)


def get_subsequent_mask(seq):
    n = seq.size(1)
    return torch.tril(torch.ones((1, n, n), device=seq.device)).bool()


class PositionalEncoding(nn.Module):
    def __init__(self, d_hid, n_position=64):
        super().__init__()
        pos = np.arange(n_position)[:, None] / np.power(10000, 2 * (np.arange(d_hid) // 2) / d_hid)
        pos[:, 0::2] = np.sin(pos[:, 0::2])
        pos[:, 1::2] = np.cos(pos[:, 1::2])
        self.register_buffer('pos_table', torch.FloatTensor(pos).unsqueeze(0))

    def forward(self, x):
        return x + self.pos_table[:, :x.size(1)].clone().detach()


class Transformer(nn.Module):
    def __init__(self, n_src_vocab, n_trg_vocab, d_model=64, d_inner=128, n_layers=2, n_head=4,
                 dropout=0.1, emb_src_trg_weight_sharing=True):
        super().__init__()
        self.src_emb = nn.Embedding(n_src_vocab, d_model, padding_idx=Constants.PAD)
        self.trg_emb = nn.Embedding(n_trg_vocab, d_model, padding_idx=Constants.PAD)
        self.position = PositionalEncoding(d_model)
        self.dropout = nn.Dropout(p=dropout)
        self.encoder = nn.ModuleList([EncoderLayer(d_model, d_inner, n_head, dropout) for _ in range(n_layers)])
        self.decoder = nn.ModuleList([DecoderLayer(d_model, d_inner, n_head, dropout) for _ in range(n_layers)])
        self.trg_word_prj = nn.Linear(d_model, n_trg_vocab, bias=False)
        self.d_model = d_model

        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

        # one matrix for the target embedding and the last projection
        self.trg_word_prj.weight = self.trg_emb.weight
        self.x_logit_scale = d_model ** -0.5
        if emb_src_trg_weight_sharing:
            self.src_emb.weight = self.trg_emb.weight

    def forward(self, src_seq, trg_seq):
        src_mask = get_pad_mask(src_seq, Constants.PAD)
        trg_mask = get_pad_mask(trg_seq, Constants.PAD) & get_subsequent_mask(trg_seq)
        memory = self.dropout(self.position(self.src_emb(src_seq)))
        for layer in self.encoder:
            memory = layer(memory, src_mask)
        x = self.dropout(self.position(self.trg_emb(trg_seq)))
        for layer in self.decoder:
            x = layer(x, memory, trg_mask, src_mask)
        logits = self.trg_word_prj(x) * self.x_logit_scale
        return logits.view(-1, logits.size(2))
