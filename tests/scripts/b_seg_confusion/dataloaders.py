import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    """background, disc, square; pixels near a border are 255 (ignored)"""
    NUM_CLASSES = 3

    def __init__(self, n, seed, split):
        self.n, self.seed, self.split = n, seed, split

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        r = np.random.RandomState(self.seed * 100000 + index)
        s = 24
        yy, xx = np.mgrid[:s, :s]
        label = np.zeros((s, s), dtype=np.int64)
        img = r.rand(3, s, s) * 0.5
        for _ in range(r.randint(1, 4)):
            cy, cx, k, rad = r.randint(3, s - 3), r.randint(3, s - 3), r.randint(1, 3), r.randint(3, 6)
            d = np.hypot(yy - cy, xx - cx) if k == 1 else np.maximum(abs(yy - cy), abs(xx - cx))
            label[d < rad] = k
            img[:, d < rad] = r.rand(3, 1) * 0.6 + np.array([[.4], [.1], [.2]] if k == 1 else [[.1], [.2], [.5]])
            label[(d >= rad) & (d < rad + 0.8)] = 255
        if self.split == 'train' and np.random.rand() < 0.5:
            img, label = img[:, :, ::-1].copy(), label[:, ::-1].copy()
        return {'image': torch.from_numpy(img).float(), 'label': torch.from_numpy(label)}


def make_data_loader(args, **kwargs):
    train_set, val_set = Shapes(150, 1, 'train'), Shapes(45, 2, 'val')
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, **kwargs)
    val_loader = DataLoader(val_set, batch_size=args.batch_size, shuffle=False, **kwargs)
    return train_loader, val_loader, train_set.NUM_CLASSES
