import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import Dataset


class EdgesDataset(Dataset):
    """A: gradient magnitude of a digit, B: the digit, both 16x16 in [-1, 1]"""

    def __init__(self, opt):
        self.opt = opt
        digits = load_digits().images[:360].astype(np.float32) / 16
        self.B = np.kron(digits, np.ones((2, 2), dtype=np.float32))

    def __getitem__(self, index):
        b = self.B[index]
        gy, gx = np.gradient(b)
        a = np.clip(np.hypot(gy, gx) * 2, 0, 1)
        if np.random.rand() < 0.5:
            a, b = a[:, ::-1], b[:, ::-1]
        to_tensor = lambda v: torch.from_numpy(np.ascontiguousarray(v, dtype=np.float32))[None] * 2 - 1
        return {'A': to_tensor(a), 'B': to_tensor(b), 'A_paths': 'digit_%04d' % index}

    def __len__(self):
        return len(self.B)
