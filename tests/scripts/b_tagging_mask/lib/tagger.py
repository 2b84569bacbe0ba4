# -*- coding: utf-8 -*-
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Tagger(nn.Module):
    def __init__(self, n_words, n_tags, emb=24, hidden=32):
        super(Tagger, self).__init__()
        self.n_tags = n_tags
        self.embed = nn.Embedding(n_words, emb, padding_idx=0)
        self.drop = nn.Dropout(0.3)
        self.lstm = nn.LSTM(emb, hidden // 2, batch_first=True, bidirectional=True)
        self.hidden2tag = nn.Linear(hidden, n_tags)

    def _features(self, x, lengths):
        e = self.drop(self.embed(x))
        packed = pack_padded_sequence(e, lengths, batch_first=True)
        h, _ = self.lstm(packed)
        h, _ = pad_packed_sequence(h, batch_first=True)
        return self.hidden2tag(self.drop(h))

    def neg_log_likelihood(self, x, y, mask, lengths):
        feats = self._features(x, lengths)
        logp = F.log_softmax(feats, dim=-1)
        nll = -logp.gather(2, y.unsqueeze(2)).squeeze(2)
        return (nll * mask).sum() / mask.sum()

    def predict(self, x, lengths):
        feats = self._features(x, lengths)
        feats[:, :, 0] = -1e9      # never <pad>
        return feats.argmax(-1)
