import numpy as np
import torch


class Compose(object):
    def __init__(self, ts):
        self.ts = ts

    def __call__(self, x):
        for t in self.ts:
            x = t(x)
        return x


class ToTensor(object):
    def __call__(self, pic):
        arr = np.array(pic, dtype=np.float32) / 255
        return torch.from_numpy(arr)[None]


class Normalize(object):
    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def __call__(self, t):
        return (t - self.mean) / self.std
