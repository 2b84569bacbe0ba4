# -*- coding: utf-8 -*-
"""轴承振动信号(模拟)"""
import numpy as np
import torch
from torch.utils.data import Dataset

from conf.config import DataConfig


class BearingDataset(Dataset):
    def __init__(self, train=True):
        rng = np.random.RandomState(0 if train else 1)
        n = DataConfig.n_train if train else DataConfig.n_test
        t = np.arange(DataConfig.window)
        self.label = rng.randint(0, 4, n)
        freq = np.array([0, 0.11, 0.17, 0.26])[self.label]
        phase = rng.rand(n, 1) * 6.28
        amp = rng.uniform(0.3, 1.0, (n, 1)) * (self.label > 0)[:, None]
        sig = np.sin(2 * np.pi * 0.03 * t + phase) + amp * np.sin(2 * np.pi * freq[:, None] * t + phase * 2)
        sig += 0.6 * rng.randn(n, DataConfig.window)
        self.data = sig.astype('float32')

    def __getitem__(self, i):
        return torch.from_numpy(self.data[i]).unsqueeze(0), torch.tensor(self.label[i]).long()

    def __len__(self):
        return len(self.label)
