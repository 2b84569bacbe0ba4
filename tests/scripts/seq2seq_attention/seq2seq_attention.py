# -*- coding: utf-8 -*-
"""
Translate numbers from German (spoken the wrong way round) into English, one pair at a time.
Encoder and decoder with attention, teacher forcing half of the time.
"""
from __future__ import unicode_literals, print_function, division
import re
import random
import time
import math
import string

import torch
import torch.nn as nn
from torch import optim
import torch.nn.functional as F

import matplotlib.pyplot as plt
plt.switch_backend('agg')

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

SOS, EOS = 0, 1
MAX_LEN = 8
HIDDEN = 48
TEACHER = 0.5

GER = "null eins zwei drei vier fünf sechs sieben acht neun".split()
ENG = "zero one two three four five six seven eight nine".split()


class Lang:
    def __init__(self, name):
        self.name = name
        self.w2i = {}
        self.i2w = {SOS: "<s>", EOS: "</s>"}

    def learn(self, sentence):
        for w in sentence.split():
            if w not in self.w2i:
                self.w2i[w] = len(self.i2w)
                self.i2w[len(self.i2w)] = w

    def tensor(self, sentence):
        ids = [self.w2i[w] for w in sentence.split()] + [EOS]
        return torch.tensor(ids, device=device).view(-1, 1)


def make_pairs():
    ger, eng = Lang('ger'), Lang('eng')
    pairs = []
    for n in range(3, 1000, 3):
        digits = [int(c) for c in str(n)]
        a = ' '.join(GER[d] for d in reversed(digits))
        b = ' '.join(ENG[d] for d in digits)
        ger.learn(a)
        eng.learn(b)
        pairs.append((a, b))
    print(len(pairs), 'pairs,', len(ger.i2w), 'and', len(eng.i2w), 'words')
    return ger, eng, pairs


class Encoder(nn.Module):
    def __init__(self, n_words, size):
        super(Encoder, self).__init__()
        self.size = size
        self.emb = nn.Embedding(n_words, size)
        self.gru = nn.GRU(size, size)

    def forward(self, word, h):
        return self.gru(self.emb(word).view(1, 1, -1), h)

    def init_hidden(self):
        return torch.zeros(1, 1, self.size, device=device)


class AttnDecoder(nn.Module):
    def __init__(self, size, n_words, p=0.1):
        super(AttnDecoder, self).__init__()
        self.emb = nn.Embedding(n_words, size)
        self.score = nn.Linear(2 * size, MAX_LEN)
        self.mix = nn.Linear(2 * size, size)
        self.drop = nn.Dropout(p)
        self.gru = nn.GRU(size, size)
        self.out = nn.Linear(size, n_words)

    def forward(self, word, h, memory):
        e = self.drop(self.emb(word).view(1, -1))
        attn = F.softmax(self.score(torch.cat([e, h[0]], 1)), dim=1)
        seen = attn.mm(memory)
        x = F.relu(self.mix(torch.cat([e, seen], 1)))
        y, h = self.gru(x.unsqueeze(0), h)
        return F.log_softmax(self.out(y[0]), dim=1), h, attn


def encode(encoder, src):
    memory = torch.zeros(MAX_LEN, encoder.size, device=device)
    h = encoder.init_hidden()
    for i in range(src.size(0)):
        out, h = encoder(src[i], h)
        memory[i] = out[0, 0]
    return memory, h


def train_pair(src, tgt, encoder, decoder, enc_opt, dec_opt, criterion):
    enc_opt.zero_grad()
    dec_opt.zero_grad()
    memory, h = encode(encoder, src)
    word = torch.tensor([[SOS]], device=device)
    loss = 0
    forced = random.random() < TEACHER
    for i in range(tgt.size(0)):
        logp, h, attn = decoder(word, h, memory)
        loss += criterion(logp, tgt[i])
        if forced:
            word = tgt[i]
        else:
            word = logp.topk(1)[1].squeeze().detach()
            if word.item() == EOS:
                break
    loss.backward()
    enc_opt.step()
    dec_opt.step()
    return loss.item() / tgt.size(0)


def train_iters(encoder, decoder, n_iters, print_every=100, plot_every=20, lr=0.02):
    start = time.time()
    curve = []
    print_total = plot_total = 0   # reset again and again
    enc_opt = optim.SGD(encoder.parameters(), lr=lr)
    dec_opt = optim.SGD(decoder.parameters(), lr=lr)
    criterion = nn.NLLLoss()
    todo = [random.choice(pairs) for _ in range(n_iters)]

    for it in range(1, n_iters + 1):
        a, b = todo[it - 1]
        loss = train_pair(ger.tensor(a), eng.tensor(b), encoder, decoder, enc_opt, dec_opt, criterion)
        print_total += loss
        plot_total += loss
        if it % print_every == 0:
            took = time.time() - start
            print('%5d (%3d%%) loss %.4f, %.1fs, %.1fs to go' % (
                it, it / n_iters * 100, print_total / print_every, took, took * (n_iters - it) / it))
            print_total = 0
        if it % plot_every == 0:
            curve.append(plot_total / plot_every)
            plot_total = 0

    plt.figure()
    plt.plot(curve)
    plt.savefig('loss.png')


def translate(encoder, decoder, sentence):
    with torch.no_grad():
        memory, h = encode(encoder, ger.tensor(sentence))
        word = torch.tensor([[SOS]], device=device)
        said = []
        for _ in range(MAX_LEN):
            logp, h, _attn = decoder(word, h, memory)
            word = logp.topk(1)[1].squeeze()
            said.append(eng.i2w[word.item()])
            if word.item() == EOS:
                break
    return ' '.join(said)


def try_some(encoder, decoder, n=5):
    for a, b in random.sample(pairs, n):
        print('>', a)
        print('=', b)
        print('<', translate(encoder, decoder, a), '\n')


ger, eng, pairs = make_pairs()
encoder1 = Encoder(len(ger.i2w), HIDDEN).to(device)
decoder1 = AttnDecoder(HIDDEN, len(eng.i2w)).to(device)

train_iters(encoder1, decoder1, 300)

encoder1.eval()
decoder1.eval()
try_some(encoder1, decoder1)
torch.save(encoder1.state_dict(), 'encoder.pt')
torch.save(decoder1.state_dict(), 'decoder.pt')
