import os
import random

import torch


class Dictionary(object):
    def __init__(self):
        self.word2idx, self.idx2word = {}, []

    def add(self, word):
        if word not in self.word2idx:
            self.word2idx[word] = len(self.idx2word)
            self.idx2word.append(word)
        return self.word2idx[word]

    def __len__(self):
        return len(self.idx2word)


GRAMMAR = {
    'S': ['NP VP', 'NP VP and S', 'NP VP PP'],
    'NP': ['the N', 'a N', 'the A N', 'my N'],
    'VP': ['V NP', 'V', 'V NP PP'],
    'PP': ['in NP', 'near NP', 'with NP'],
    'N': ['cat', 'dog', 'river', 'king', 'house', 'bird', 'tree'],
    'A': ['old', 'small', 'red', 'quiet'],
    'V': ['sees', 'likes', 'follows', 'hears', 'sleeps'],
}


def expand(sym, rnd, depth=0):
    if sym not in GRAMMAR:
        return [sym]
    options = GRAMMAR[sym] if depth < 4 else GRAMMAR[sym][:2]
    out = []
    for s in rnd.choice(options).split():
        out += expand(s, rnd, depth + 1)
    return out


class Corpus(object):
    def __init__(self):
        self.dictionary = Dictionary()
        self.train = self.tokenize(1300, 1)
        self.valid = self.tokenize(160, 2)
        self.test = self.tokenize(160, 3)

    def tokenize(self, sentences, seed):
        rnd = random.Random(seed)
        ids = []
        for _ in range(sentences):
            ids += [self.dictionary.add(w) for w in expand('S', rnd) + ['<eos>']]
        return torch.LongTensor(ids)
