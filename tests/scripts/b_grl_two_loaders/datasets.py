import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset


def make_domain(name, split):
    """clean: plain digits. noisy: inverted digits on a noise background."""
    bunch = load_digits()
    x = bunch.images.astype(np.float32) / 16
    y = bunch.target.astype(np.int64)
    if name == 'noisy':
        r = np.random.RandomState(5)
        x = np.abs(r.uniform(0, .5, x.shape).astype(np.float32) - x)[::-1].copy()
        y = y[::-1].copy()
        cut = 1100
    elif name == 'clean':
        cut = 1200
    else:
        raise ValueError('no such domain: ' + name)
    part = slice(0, cut) if split == 'train' else slice(cut, None)
    return TensorDataset(torch.from_numpy(x[part])[:, None], torch.from_numpy(y[part]))
