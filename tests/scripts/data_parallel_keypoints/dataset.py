import numpy as np
import torch
import torch.utils.data as data


class PointsDataset(data.Dataset):
    """a cross, a ring and a blob in noise"""
    def __init__(self, split):
        self.split = split
        self.n = 160 if split == 'train' else 45
        self.start = 0 if split == 'train' else 100000

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        rng = np.random.RandomState(self.start + index)
        y, x = np.mgrid[0:32, 0:32]
        pts = rng.randint(5, 27, (3, 2))
        img = rng.normal(0, 0.15, (32, 32))
        (ax, ay), (bx, by), (cx, cy) = pts
        img[(abs(x - ax) < 1) & (abs(y - ay) < 4) | (abs(y - ay) < 1) & (abs(x - ax) < 4)] += 1
        img += np.exp(-(np.hypot(x - bx, y - by) - 3) ** 2)
        img += np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 6.)
        hm = np.zeros((3, 16, 16), dtype=np.float32)
        gy, gx = np.mgrid[0:16, 0:16]
        for k, (px, py) in enumerate(pts // 2):
            hm[k] = np.exp(-((gx - px) ** 2 + (gy - py) ** 2) / 2.)
        return {'input': img[None].astype(np.float32), 'hm': hm, 'meta': pts.astype(np.float32)}
