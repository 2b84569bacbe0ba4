import torch
import torch.nn as nn


class RNNModel(nn.Module):
    def __init__(self, kind, vocab, emsize, nhid, nlayers, dropout=0.5, tied=False):
        super(RNNModel, self).__init__()
        self.kind, self.vocab, self.nhid, self.nlayers = kind, vocab, nhid, nlayers
        self.dropout = nn.Dropout(dropout)
        self.embedding = nn.Embedding(vocab, emsize)
        self.rnn = getattr(nn, kind)(emsize, nhid, nlayers)
        self.output = nn.Linear(nhid, vocab)
        if tied:   # one matrix for both ends
            assert nhid == emsize, '--tied needs nhid == emsize'
            self.output.weight = self.embedding.weight
        for w in (self.embedding.weight, self.output.weight):
            nn.init.uniform_(w, -0.1, 0.1)
        nn.init.zeros_(self.output.bias)

    def forward(self, words, hidden):
        states, hidden = self.rnn(self.dropout(self.embedding(words)), hidden)
        return self.output(self.dropout(states)), hidden

    def init_hidden(self, bsz):
        w = next(self.parameters())
        zeros = w.new_zeros(self.nlayers, bsz, self.nhid)
        if self.kind == 'LSTM':
            return zeros, zeros.clone()
        return zeros
