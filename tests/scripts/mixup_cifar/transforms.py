"""The handful of image transforms that the training scripts need."""
import random

import numpy as np
import torch
from PIL import Image


class Compose(object):
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, img):
        for t in self.transforms:
            img = t(img)
        return img


class ToTensor(object):
    def __call__(self, pic):
        arr = np.array(pic, dtype=np.float32) / 255.0
        if arr.ndim == 2:
            arr = arr[:, :, None]
        return torch.from_numpy(arr.transpose(2, 0, 1).copy())


class Normalize(object):
    def __init__(self, mean, std):
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)

    def __call__(self, tensor):
        return (tensor - self.mean) / self.std


class RandomHorizontalFlip(object):
    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, img):
        if random.random() < self.p:
            return img.transpose(Image.FLIP_LEFT_RIGHT)
        return img


class RandomCrop(object):
    def __init__(self, size, padding=0):
        self.size = size
        self.padding = padding

    def __call__(self, img):
        if self.padding:
            w, h = img.size
            canvas = Image.new(img.mode, (w + 2 * self.padding, h + 2 * self.padding))
            canvas.paste(img, (self.padding, self.padding))
            img = canvas
        w, h = img.size
        x = random.randint(0, w - self.size)
        y = random.randint(0, h - self.size)
        return img.crop((x, y, x + self.size, y + self.size))


class Resize(object):
    def __init__(self, size):
        self.size = size if isinstance(size, tuple) else (size, size)

    def __call__(self, img):
        return img.resize(self.size, Image.BILINEAR)
