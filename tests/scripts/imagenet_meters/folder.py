import os
import random

import numpy as np
import torch
from PIL import Image

KINDS = ['checker', 'dots', 'gradient', 'noise', 'rings', 'stripes']


def draw(kind, rng, s=36):
    y, x = np.mgrid[0:s, 0:s].astype(float)
    f, p = rng.uniform(0.5, 0.9), rng.uniform(0, 6)
    g = {'stripes': np.sin(f * x + p),
         'checker': np.sign(np.sin(f * x + p) * np.sin(f * y + p)),
         'rings': np.sin(f * np.hypot(x - s / 2, y - s / 2) + p),
         'gradient': (x + y) / s - 1,
         'dots': (np.sin(f * x) * np.sin(f * y + p) > 0.6) * 2.0 - 1,
         'noise': rng.normal(0, 0.8, (s, s))}[kind]
    img = 128 + 60 * g[..., None] * rng.uniform(0.3, 1, 3) + rng.normal(0, 20, (s, s, 3))
    return Image.fromarray(img.clip(0, 255).astype(np.uint8))


def fake_imagenet(root):
    rng = np.random.RandomState(4)
    for split, n in (('train', 44), ('val', 13)):
        for kind in KINDS:
            d = os.path.join(root, split, kind)
            os.makedirs(d)
            for i in range(n):
                draw(kind, rng).save(os.path.join(d, '%s_%d.png' % (kind, i)))


class ImageFolder(torch.utils.data.Dataset):
    def __init__(self, root, train):
        self.classes = sorted(os.listdir(root))
        self.train = train
        self.samples = []
        for c, name in enumerate(self.classes):
            for f in sorted(os.listdir(os.path.join(root, name))):
                self.samples.append((os.path.join(root, name, f), c))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        path, target = self.samples[i]
        img = np.asarray(Image.open(path).convert('RGB'), dtype=np.float32) / 255.
        if self.train:
            dy, dx = random.randint(0, 4), random.randint(0, 4)
            img = img[dy:dy + 32, dx:dx + 32]
            if random.random() < 0.5:
                img = img[:, ::-1]
        else:
            img = img[2:34, 2:34]
        return torch.from_numpy((img.transpose(2, 0, 1).copy() - 0.45) / 0.22), target
