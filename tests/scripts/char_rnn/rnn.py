import torch
from torch import nn
from torch.autograd import Variable


class CharModel(nn.Module):

    def __init__(self, n_in, n_hidden, n_out, kind='lstm', layers=1):
        super(CharModel, self).__init__()
        self.kind = kind
        self.n_hidden = n_hidden
        self.layers = layers
        self.embed = nn.Embedding(n_in, n_hidden)
        cell = {'lstm': nn.LSTM, 'gru': nn.GRU}[kind]
        self.cell = cell(n_hidden, n_hidden, layers)
        self.readout = nn.Linear(n_hidden, n_out)

    def forward(self, x, state):
        # x: one character for each row of the batch
        e = self.embed(x).unsqueeze(0)
        h, state = self.cell(e, state)
        return self.readout(h.squeeze(0)), state

    def empty_state(self, batch, gpu=False):
        h = Variable(torch.zeros(self.layers, batch, self.n_hidden))
        if gpu:
            h = h.cuda()
        return (h, h.clone()) if self.kind == 'lstm' else h


def babble(model, start='T', length=80, temp=0.7, gpu=False):
    """let it write"""
    from text import encode, decode
    x = encode(start)
    if gpu:
        x = x.cuda()
    state = model.empty_state(1, gpu)
    for c in x[:-1]:
        _, state = model(c.view(1), state)
    last = x[-1].view(1)
    out = []
    for _ in range(length):
        scores, state = model(last, state)
        last = torch.multinomial((scores.data / temp).exp(), 1).view(1)
        out.append(last.item())
    return start + decode(out)
