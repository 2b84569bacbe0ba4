"""Handwritten digits, same interface as the MNIST of torchvision (8x8 digits of scikit-learn blown up to 28x28)."""
import os

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset


class MNIST(Dataset):
    training_file = 'training.pt'
    test_file = 'test.pt'

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        self.root = os.path.expanduser(root)
        self.transform = transform
        self.target_transform = target_transform
        self.train = train

        if download:
            self.download()

        if not self._check_exists():
            raise RuntimeError('Dataset not found. You can use download=True to download it')

        name = self.training_file if self.train else self.test_file
        self.data, self.targets = torch.load(os.path.join(self.processed_folder, name))

    @property
    def processed_folder(self):
        return os.path.join(self.root, 'MNIST', 'processed')

    def _check_exists(self):
        return os.path.exists(os.path.join(self.processed_folder, self.test_file))

    def download(self):
        if self._check_exists():
            return
        os.makedirs(self.processed_folder, exist_ok=True)
        from sklearn.datasets import load_digits
        digits = load_digits()
        images = (digits.images / 16.0 * 255).astype(np.uint8)
        images = np.pad(np.kron(images, np.ones((1, 3, 3), dtype=np.uint8)), ((0, 0), (2, 2), (2, 2)))
        labels = digits.target
        n = 1200
        torch.save((torch.from_numpy(images[:n]), torch.from_numpy(labels[:n])),
                   os.path.join(self.processed_folder, self.training_file))
        torch.save((torch.from_numpy(images[n:]), torch.from_numpy(labels[n:])),
                   os.path.join(self.processed_folder, self.test_file))
        print('Done!')

    def __getitem__(self, index):
        img, target = self.data[index], int(self.targets[index])
        img = Image.fromarray(img.numpy(), mode='L')
        if self.transform is not None:
            img = self.transform(img)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return img, target

    def __len__(self):
        return len(self.data)
