import numpy as np
import torch
import torch.utils.data
from sklearn.datasets import load_digits


def get(batch_size):
    d = load_digits()
    x = torch.tensor(d.images[:, None] / 16., dtype=torch.float32)
    # harder: noise and every tenth label wrong
    g = np.random.RandomState(4)
    x += torch.tensor(g.normal(0, .35, x.shape), dtype=torch.float32)
    y = d.target.copy()
    flip = np.arange(0, 1250, 10)
    y[flip] = g.randint(0, 10, len(flip))
    y = torch.tensor(y)
    sets = {'train': (x[:1250], y[:1250]), 'test': (x[1250:], y[1250:])}
    return {k: torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*v), batch_size=batch_size,
                                           shuffle=(k == 'train')) for k, v in sets.items()}, 10
