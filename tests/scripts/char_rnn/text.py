import string
import random

import torch
import unidecode_lite

chars = string.ascii_letters + string.digits + " .,;'-\n"
n_chars = len(chars)


class TextFile:
    """a text as one long tensor of character numbers, out of which random pieces are cut"""

    def __init__(self, path):
        with open(path, encoding='utf-8') as f:
            raw = unidecode_lite.unidecode(f.read())
        self.text = ''.join(c for c in raw if c in chars)
        self.codes = encode(self.text)

    def __len__(self):
        return len(self.text)

    def random_piece(self, length):
        at = random.randint(0, len(self) - length - 1)
        piece = self.codes[at:at + length + 1]
        return piece[:-1], piece[1:]

    def random_batch(self, length, n):
        xs, ys = zip(*[self.random_piece(length) for _ in range(n)])
        return torch.stack(xs), torch.stack(ys)


def encode(s):
    return torch.LongTensor([chars.index(c) for c in s])


def decode(codes):
    return ''.join(chars[int(c)] for c in codes)
