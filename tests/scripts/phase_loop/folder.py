import os

import numpy as np
from PIL import Image
from torch.utils.data import Dataset

IMG_EXTENSIONS = ('.png', '.jpg', '.jpeg')


def make_toy_images(root, counts, size=40):
    """ants are striped, bees are dotted"""
    rng = np.random.RandomState(7)
    for split, n in counts.items():
        for c, name in enumerate(['ants', 'bees']):
            folder = os.path.join(root, split, name)
            os.makedirs(folder, exist_ok=True)
            for i in range(n):
                y, x = np.mgrid[0:size, 0:size]
                base = (np.sin(x / 2.0 + rng.rand() * 6) if c == 0 else np.sin(x / 2.0) * np.cos(y / 2.0 + rng.rand() * 6))
                img = 120 + 60 * base[..., None] + rng.normal(0, 40, (size, size, 3))
                Image.fromarray(img.clip(0, 255).astype(np.uint8)).save(os.path.join(folder, '%04d.png' % i))


class ImageFolder(Dataset):
    def __init__(self, root, transform=None):
        self.classes = [d for d in sorted(os.listdir(root)) if os.path.isdir(os.path.join(root, d))]
        self.class_to_idx = {c: i for i, c in enumerate(self.classes)}
        self.imgs = []
        for c in self.classes:
            for fname in os.listdir(os.path.join(root, c)):
                if fname.lower().endswith(IMG_EXTENSIONS):
                    self.imgs.append((os.path.join(root, c, fname), self.class_to_idx[c]))
        self.transform = transform

    def __len__(self):
        return len(self.imgs)

    def __getitem__(self, i):
        path, target = self.imgs[i]
        img = Image.open(path).convert('RGB')
        if self.transform is not None:
            img = self.transform(img)
        return img, target
