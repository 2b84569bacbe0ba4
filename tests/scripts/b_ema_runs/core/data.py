import numpy as np
import torch
from sklearn.datasets import make_blobs
from torch.utils.data import DataLoader, Dataset


class SpotDataset(Dataset):
    """one bright spot and its class (size) per image: x, y, class"""

    def __init__(self, n, seed, augment=False, size=20):
        r = np.random.RandomState(seed)
        self.size, self.augment = size, augment
        self.imgs, self.targets = [], []
        yy, xx = np.mgrid[:size, :size]
        for _ in range(n):
            cx, cy = r.uniform(4, size - 4, 2)
            c = r.randint(0, 3)
            im = np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / (2 * (1 + c * 1.1) ** 2))
            self.imgs.append((im + 0.15 * r.randn(size, size)).astype(np.float32))
            self.targets.append([cx / size, cy / size, c])

    def __len__(self):
        return len(self.imgs)

    def __getitem__(self, i):
        im, (x, y, c) = self.imgs[i], self.targets[i]
        if self.augment and np.random.rand() < 0.5:
            im, x = im[:, ::-1], 1 - x
        return torch.from_numpy(np.ascontiguousarray(im))[None], torch.tensor([x, y, c], dtype=torch.float32)


def create_dataloader(n, seed, batch_size, augment=False, shuffle=False):
    dataset = SpotDataset(n, seed, augment)
    return DataLoader(dataset, batch_size=min(batch_size, len(dataset)), shuffle=shuffle), dataset
