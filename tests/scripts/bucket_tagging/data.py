import random
from collections import namedtuple

import torch
from torch.utils.data import Dataset, Sampler

Example = namedtuple("Example", "words tags")
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
IGNORE = -100

_first = "anna boris clara david elsa franz".split()
_last = "meyer novak olsen petit quinn rossi".split()
_city = "porto riga turin vienna york".split()
_new = "new old san".split()
_other = "saw met in near left and then the a was with by slowly again from".split()


def make_corpus(n, seed):
    r = random.Random(seed)
    out = []
    for _ in range(n):
        words, tags = [], []
        for _ in range(r.randint(2, 14)):
            k = r.random()
            if k < 0.15:
                words += [r.choice(_first), r.choice(_last)]; tags += [1, 2]
            elif k < 0.2:
                words += [r.choice(_last + _first)]; tags += [1]
            elif k < 0.3:
                words += [r.choice(_city)]; tags += [3]
            elif k < 0.35:
                words += [r.choice(_new), r.choice(_city)]; tags += [3, 4]
            else:
                words += [r.choice(_other)]; tags += [0]
        out.append(Example(words, tags))
    return out


class Vocab:
    def __init__(self, examples):
        words = set(w for e in examples for w in e.words)
        self.itos = ["<pad>", "<unk>"] + sorted(words)
        self.stoi = {w: i for i, w in enumerate(self.itos)}

    def __len__(self):
        return len(self.itos)

    def __call__(self, words):
        return [self.stoi.get(w, 1) for w in words]


class TaggingDataset(Dataset):
    def __init__(self, examples, vocab):
        self.examples = examples
        self.vocab = vocab

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, i):
        e = self.examples[i]
        return torch.tensor(self.vocab(e.words)), torch.tensor(e.tags)

    def lengths(self):
        return [len(e.words) for e in self.examples]


class TokenBatchSampler(Sampler):
    """sentences of about the same length, as many as fit into max_tokens"""

    def __init__(self, lengths, max_tokens, shuffle=True):
        self.lengths = lengths
        self.max_tokens = max_tokens
        self.shuffle = shuffle
        self.batches = self._make()

    def _make(self):
        order = sorted(range(len(self.lengths)), key=lambda i: (self.lengths[i], random.random()))
        batches, batch = [], []
        for i in order:
            longest = max([self.lengths[j] for j in batch] + [self.lengths[i]])
            if batch and longest * (len(batch) + 1) > self.max_tokens:
                batches.append(batch)
                batch = []
            batch.append(i)
        batches.append(batch)
        return batches

    def __iter__(self):
        if self.shuffle:
            self.batches = self._make()
            random.shuffle(self.batches)
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


def pad_collate(items):
    n = max(len(x) for x, _ in items)
    xs = torch.zeros(len(items), n, dtype=torch.long)
    ys = torch.full((len(items), n), IGNORE, dtype=torch.long)
    for k, (x, y) in enumerate(items):
        xs[k, :len(x)] = x
        ys[k, :len(y)] = y
    return xs, ys


def spans(tags):
    """set of (start, end, kind)"""
    out, start, kind = set(), None, None
    for i, t in enumerate(list(tags) + [0]):
        if start is not None and t != kind + 1:
            out.add((start, i, kind))
            start = None
        if t in (1, 3):
            start, kind = i, t
    return out
