import os
from io import open
import torch


class Vocabulary(object):
    def __init__(self):
        self.index = {}
        self.words = []

    def add(self, word):
        if word not in self.index:
            self.index[word] = len(self.words)
            self.words.append(word)
        return self.index[word]

    def __len__(self):
        return len(self.words)


class Corpus(object):
    """three text files, one dictionary"""

    def __init__(self, path):
        self.dictionary = Vocabulary()
        self.train, self.valid, self.test = [self.read(os.path.join(path, name + '.txt'))
                                             for name in ('train', 'valid', 'test')]

    def read(self, path):
        ids = []
        with open(path, encoding="utf8") as f:
            for line in f:
                ids.extend(self.dictionary.add(w) for w in line.split() + ['<eos>'])
        return torch.tensor(ids, dtype=torch.int64)
