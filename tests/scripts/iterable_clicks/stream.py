import glob
import os
import random

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info


def write_shards(folder, n_files=5, lines=420):
    """label<TAB>seven categorical values, hashed by the reader"""
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(17)
    weight = rng.normal(0, 0.9, (7, 30))
    for k in range(n_files + 1):
        name = "heldout.tsv" if k == n_files else f"part-{k:03d}.tsv"
        with open(os.path.join(folder, name), "w") as f:
            for _ in range(lines + 13 * k):
                vals = rng.integers(0, 30, 7)
                p = 1 / (1 + np.exp(-(weight[np.arange(7), vals].sum() - 1)))
                f.write(f"{int(rng.random() < p)}\t" + "\t".join(f"f{j}={v}" for j, v in enumerate(vals)) + "\n")


def parse(line, buckets):
    label, *feats = line.rstrip("\n").split("\t")
    ids = [sum(ord(c) * 31 ** i for i, c in enumerate(f)) % buckets for f in feats]
    return torch.tensor(ids), torch.tensor(float(label))


class ClickStream(IterableDataset):
    def __init__(self, pattern, buckets, shuffle_buffer=0):
        super().__init__()
        self.files = sorted(glob.glob(pattern))
        if not self.files:
            raise FileNotFoundError(pattern)
        self.buckets = buckets
        self.shuffle_buffer = shuffle_buffer

    def lines(self):
        info = get_worker_info()
        files = self.files if info is None else self.files[info.id::info.num_workers]
        for path in files:
            with open(path) as f:
                yield from f

    def __iter__(self):
        buf = []
        for line in self.lines():
            item = parse(line, self.buckets)
            if not self.shuffle_buffer:
                yield item
                continue
            buf.append(item)
            if len(buf) >= self.shuffle_buffer:
                k = random.randrange(len(buf))
                buf[k], buf[-1] = buf[-1], buf[k]
                yield buf.pop()
        random.shuffle(buf)
        yield from buf
