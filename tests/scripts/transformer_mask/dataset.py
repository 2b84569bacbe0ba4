import random

import torch
import torch.utils.data

from transformer import Constants


def make_pairs(n, seed):
    """ 'sort these letters, and say twice those that are capital' """
    rng = random.Random(seed)
    pairs = []
    for _ in range(n):
        src = [rng.randint(4, 23) for _ in range(rng.randint(3, 12))]
        trg = [w for w in sorted(src) for _ in range(1 + (w > 18))]
        pairs.append((src, trg))
    return pairs


class TranslationDataset(torch.utils.data.Dataset):
    def __init__(self, pairs):
        self._src = [[Constants.BOS] + s + [Constants.EOS] for s, _ in pairs]
        self._trg = [[Constants.BOS] + t + [Constants.EOS] for _, t in pairs]

    @property
    def vocab_size(self):
        return 24

    def __len__(self):
        return len(self._src)

    def __getitem__(self, idx):
        return self._src[idx], self._trg[idx]


def collate_fn(insts):
    ''' Pad to the longest of the batch '''
    def pad(seqs):
        longest = max(len(s) for s in seqs)
        return torch.LongTensor([s + [Constants.PAD] * (longest - len(s)) for s in seqs])
    src, trg = zip(*insts)
    return pad(src), pad(trg)
