import random

import torch


class RandomErasing(object):
    def __init__(self, probability=0.4):
        self.probability = probability

    def __call__(self, img):
        if random.uniform(0, 1) > self.probability:
            return img
        i, j = random.randint(0, 5), random.randint(0, 5)
        img = img.clone()
        img[..., i:i + 3, j:j + 3] = 0
        return img


class Compose(object):
    def __init__(self, fns):
        self.fns = fns

    def __call__(self, x):
        for f in self.fns:
            x = f(x)
        return x


def build_transforms(cfg, is_train=True):
    fns = [lambda x: (x / 16.0 - 0.3) / 0.38, lambda x: x.unsqueeze(0)]
    if is_train:
        fns.append(RandomErasing())
    return Compose(fns)
