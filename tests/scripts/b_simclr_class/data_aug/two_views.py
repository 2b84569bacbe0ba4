import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import Dataset


def random_view(img):
    dy, dx = torch.randint(-1, 2, (2,)).tolist()
    img = torch.roll(img, (dy, dx), (1, 2))
    img = img * (0.6 + 0.8 * torch.rand(1))
    if torch.rand(1) < 0.5:
        img = img + 0.1 * torch.randn_like(img)
    return img


class ContrastiveDigits(Dataset):
    def __init__(self, train=True, n_views=2):
        d = load_digits()
        x = torch.from_numpy(d.images.astype(np.float32) / 16)[:, None]
        y = torch.from_numpy(d.target)
        self.x, self.y = (x[:1200], y[:1200]) if train else (x[1200:], y[1200:])
        self.n_views = n_views

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return [random_view(self.x[i]) for _ in range(self.n_views)], self.y[i]
