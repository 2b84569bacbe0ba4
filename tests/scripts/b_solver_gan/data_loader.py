import numpy as np
import torch
from torch.utils import data


class Blobs(data.Dataset):
    """coloured discs and rings. attributes: (warm colour, filled, big)"""

    def __init__(self, size, mode):
        rng = np.random.RandomState(99 if mode == 'train' else 100)
        n = 350 if mode == 'train' else 40
        self.size = size
        self.attr = rng.randint(0, 2, (n, 3))
        self.centre = rng.randint(5, size - 5, (n, 2))

    def __len__(self):
        return len(self.attr)

    def __getitem__(self, index):
        warm, filled, big = self.attr[index]
        cy, cx = self.centre[index]
        yy, xx = np.mgrid[:self.size, :self.size]
        dist = np.hypot(yy - cy, xx - cx)
        radius = 5 if big else 3
        mask = dist < radius if filled else np.abs(dist - radius) < 0.8
        img = np.full((3, self.size, self.size), -1, dtype=np.float32)
        for c, v in enumerate((1.0, 0.2, -1) if warm else (-1, 0.2, 1.0)):
            img[c][mask] = v
        return torch.from_numpy(img), torch.from_numpy(self.attr[index].astype(np.float32))


def get_loader(image_size, batch_size, mode='train', num_workers=0):
    dataset = Blobs(image_size, mode)
    return data.DataLoader(dataset, batch_size, shuffle=(mode == 'train'), num_workers=num_workers)
