import logging
import os
from os import listdir
from os.path import splitext, isfile, join
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset


def draw_examples(images_dir, masks_dir, n=70, size=32):
    """squares (1) and discs (2) on noise"""
    images_dir.mkdir(parents=True, exist_ok=True)
    masks_dir.mkdir(parents=True, exist_ok=True)
    rng = np.random.RandomState(21)
    y, x = np.mgrid[0:size, 0:size]
    for i in range(n):
        mask = np.zeros((size, size), np.uint8)
        for kind in (1, 2):
            cy, cx, r = rng.randint(6, size - 6), rng.randint(6, size - 6), rng.randint(3, 7)
            inside = (np.maximum(abs(y - cy), abs(x - cx)) < r) if kind == 1 else ((y - cy) ** 2 + (x - cx) ** 2 < r * r)
            mask[inside] = kind
        img = rng.normal(60, 30, (size, size, 3)) + np.array([0, 70, 120])[mask][..., None]
        Image.fromarray(img.clip(0, 255).astype(np.uint8)).save(images_dir / f'{i:03d}.png')
        Image.fromarray(mask).save(masks_dir / f'{i:03d}_mask.png')


class BasicDataset(Dataset):
    def __init__(self, images_dir: str, mask_dir: str, scale: float = 1.0, mask_suffix: str = '_mask'):
        self.images_dir = Path(images_dir)
        self.mask_dir = Path(mask_dir)
        assert 0 < scale <= 1, 'Scale must be between 0 and 1'
        self.scale = scale
        self.mask_suffix = mask_suffix
        self.ids = [splitext(file)[0] for file in listdir(images_dir) if isfile(join(images_dir, file)) and not file.startswith('.')]
        if not self.ids:
            raise RuntimeError(f'no images in {images_dir}')
        logging.info(f'{len(self.ids)} examples')
        values = [np.unique(np.asarray(Image.open(self.mask_dir / f'{i}{mask_suffix}.png'))) for i in self.ids]
        self.mask_values = sorted(np.unique(np.concatenate(values)).tolist())
        logging.info(f'mask values: {self.mask_values}')

    def __len__(self):
        return len(self.ids)

    def _read(self, path, mode):
        img = Image.open(path)
        w, h = img.size
        new = (int(self.scale * w), int(self.scale * h))
        return np.asarray(img.resize(new, mode))

    def __getitem__(self, idx):
        name = self.ids[idx]
        mask = self._read(self.mask_dir / f'{name}{self.mask_suffix}.png', Image.NEAREST)
        img = self._read(self.images_dir / f'{name}.png', Image.BICUBIC).transpose(2, 0, 1) / 255.0
        return {
            'image': torch.as_tensor(img.copy()).float().contiguous(),
            'mask': torch.as_tensor(mask.copy()).long().contiguous()
        }
