import numpy as np


def edit_distance(ref, hyp):
    d = np.zeros((len(ref) + 1, len(hyp) + 1), dtype=int)
    d[:, 0] = np.arange(len(ref) + 1)
    d[0, :] = np.arange(len(hyp) + 1)
    for i in range(1, len(ref) + 1):
        for j in range(1, len(hyp) + 1):
            cost = 0 if ref[i - 1] == hyp[j - 1] else 1
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + cost)
    return d[-1, -1]


def wer(reference, hypothesis):
    ref = reference.split()
    return edit_distance(ref, hypothesis.split()) / len(ref)


def cer(reference, hypothesis):
    return edit_distance(reference, hypothesis) / len(reference)


class TextTransform:
    """' and space included, 28 is the CTC blank"""

    def __init__(self):
        chars = "' abcdefghijklmnopqrstuvwxyz"
        self.char_map = {c: i for i, c in enumerate(chars)}
        self.index_map = {i: c for c, i in self.char_map.items()}

    def text_to_int(self, text):
        return [self.char_map[c] for c in text]

    def int_to_text(self, labels):
        return ''.join(self.index_map[int(i)] for i in labels)
