"""
Bytes of some text -> train.bin, val.bin, meta.pkl
"""
import os
import pickle
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))


def text():
    rng = np.random.default_rng(5)
    names = ['Ann', 'Bo', 'Cy', 'Di', 'Ed']
    acts = ['gives', 'owes', 'sends', 'lends']
    lines = []
    for _ in range(700):
        a, b = rng.choice(names, 2, replace=False)
        n = int(rng.integers(1, 50))
        lines.append(f"{a}: {rng.choice(acts)} {b} {n} + {n} = {2 * n}.\n")
    return ''.join(lines)


def prepare(folder):
    os.makedirs(folder, exist_ok=True)
    data = text()
    chars = sorted(set(data))
    stoi = {c: i for i, c in enumerate(chars)}
    ids = np.array([stoi[c] for c in data], dtype=np.uint16)
    cut = int(0.9 * len(ids))
    ids[:cut].tofile(os.path.join(folder, 'train.bin'))
    ids[cut:].tofile(os.path.join(folder, 'val.bin'))
    with open(os.path.join(folder, 'meta.pkl'), 'wb') as f:
        pickle.dump({'vocab_size': len(chars), 'itos': dict(enumerate(chars)), 'stoi': stoi}, f)
    print(f"{len(ids):,} characters, {len(chars)} different")


if __name__ == '__main__':
    prepare(os.path.join(here, 'data'))
