import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import Dataset


class Digits(Dataset):
    def __init__(self, root, transform=None):
        bunch = load_digits()
        self.images = (bunch.images / 16 * 255).astype(np.uint8)
        self.labels = bunch.target
        self.transform = transform

    def __getitem__(self, i):
        img = Image.fromarray(self.images[i]).resize((16, 16), Image.BILINEAR)
        if self.transform is not None:
            img = self.transform(img)
        return img, int(self.labels[i])

    def __len__(self):
        return len(self.labels)
