import os

import numpy as np
import torch
from torch.utils.data import Dataset
from sklearn.datasets import load_sample_images
from PIL import Image


def cut(images, scale, size, stride):
    lr, hr = [], []
    for im in images:
        im = im.resize((im.width // 2, im.height // 2), Image.BICUBIC)
        for i in range(0, im.height - size + 1, stride):
            for j in range(0, im.width - size + 1, stride):
                patch = im.crop((j, i, j + size, i + size))
                hr.append(np.array(patch))
                lr.append(np.array(patch.resize((size // scale, size // scale), Image.BICUBIC)))
    return np.array(lr), np.array(hr)


def prepare(cache_dir, scale):
    if not os.path.exists(cache_dir):
        os.makedirs(cache_dir)
    train_file = os.path.join(cache_dir, 'train_x{}.npy'.format(scale))
    eval_file = os.path.join(cache_dir, 'eval_x{}.npy'.format(scale))
    if not os.path.exists(train_file):
        print('cutting patches ...')
        images = [Image.fromarray(a).convert('L') for a in load_sample_images().images]
        lr, hr = cut(images, scale, size=24, stride=16)
        keep = np.arange(len(lr)) % 9 != 0
        np.save(eval_file, {'lr': lr[~keep], 'hr': hr[~keep]})
        np.save(train_file, {'lr': lr[keep], 'hr': hr[keep]})
    return train_file, eval_file


class PatchDataset(Dataset):
    def __init__(self, npy_file):
        super(PatchDataset, self).__init__()
        d = np.load(npy_file, allow_pickle=True).item()
        self.lr, self.hr = d['lr'], d['hr']

    def __getitem__(self, idx):
        f = lambda a: torch.from_numpy(np.expand_dims(a[idx] / 255., 0)).float()
        return f(self.lr), f(self.hr)

    def __len__(self):
        return len(self.lr)
