import os

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset
from base import BaseDataLoader


class DigitDataLoader(BaseDataLoader):
    """
    digits; the arrays are cached in data_dir
    """
    def __init__(self, data_dir, batch_size, shuffle=True, validation_split=0.0, num_workers=1, training=True):
        self.data_dir = data_dir
        cache = os.path.join(data_dir, 'digits.npz')
        if not os.path.exists(cache):
            os.makedirs(data_dir, exist_ok=True)
            d = load_digits()
            np.savez(cache, x=d.images / 16., y=d.target)
        with np.load(cache) as f:
            x = torch.tensor(f['x'], dtype=torch.float32).unsqueeze(1)
            y = torch.tensor(f['y'])
        cut = 1500
        self.dataset = TensorDataset(x[:cut], y[:cut]) if training else TensorDataset(x[cut:], y[cut:])
        super().__init__(self.dataset, batch_size, shuffle, validation_split, num_workers)
