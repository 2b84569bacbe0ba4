import glob
import random
import os

import numpy as np
import torch
from torch.utils.data import Dataset
from PIL import Image


def prepare_toy_data(root, n=16, size=16):
    """A: circles that are red, B: squares that are blue"""
    if os.path.exists(os.path.join(root, 'train')):
        return
    rng = np.random.RandomState(0)
    for domain in 'AB':
        folder = os.path.join(root, 'train', domain)
        os.makedirs(folder)
        for k in range(n + (domain == 'B') * 3):
            y, x = np.mgrid[0:size, 0:size] - size // 2
            r = rng.randint(3, 7)
            inside = (x ** 2 + y ** 2 < r ** 2) if domain == 'A' else (np.maximum(abs(x), abs(y)) < r)
            img = rng.randint(0, 40, (size, size, 3))
            img[inside, 0 if domain == 'A' else 2] = 220
            Image.fromarray(img.astype(np.uint8)).save(os.path.join(folder, '%03d.png' % k))


class ImageDataset(Dataset):
    def __init__(self, root, unaligned=False, mode='train'):
        self.unaligned = unaligned
        self.files_A = sorted(glob.glob(os.path.join(root, '%s/A' % mode) + '/*.*'))
        self.files_B = sorted(glob.glob(os.path.join(root, '%s/B' % mode) + '/*.*'))

    def _load(self, path):
        arr = np.asarray(Image.open(path).convert('RGB'), dtype=np.float32)
        if random.random() > 0.5:
            arr = arr[:, ::-1]
        return torch.from_numpy(arr.copy()).permute(2, 0, 1) / 127.5 - 1

    def __getitem__(self, index):
        item_A = self._load(self.files_A[index % len(self.files_A)])
        if self.unaligned:
            item_B = self._load(self.files_B[random.randint(0, len(self.files_B) - 1)])
        else:
            item_B = self._load(self.files_B[index % len(self.files_B)])
        return {'A': item_A, 'B': item_B}

    def __len__(self):
        return max(len(self.files_A), len(self.files_B))
