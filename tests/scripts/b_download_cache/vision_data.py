import codecs
import gzip
import hashlib
import os
import os.path

import numpy as np
import torch
import torch.utils.data as data
from sklearn.datasets import load_digits


class MiniMNIST(data.Dataset):
    """`MiniMNIST <nowhere>`_ Dataset.

    Args:
        root (string): where processed/training.pt and processed/test.pt are.
        train (bool, optional): training.pt or test.pt.
        download (bool, optional): fetch and process the files if they are not there.
        transform (callable, optional): applied to each image.
    """
    raw_folder = 'raw'
    processed_folder = 'processed'
    training_file = 'training.pt'
    test_file = 'test.pt'
    names = {'images': 'images-idx3-ubyte.gz', 'labels': 'labels-idx1-ubyte.gz'}

    def __init__(self, root, train=True, transform=None, download=False):
        self.root = os.path.expanduser(root)
        self.transform = transform
        self.train = train
        if download:
            self.download()
        if not self._check_exists():
            raise RuntimeError('Dataset not found. You can use download=True to download it')
        name = self.training_file if self.train else self.test_file
        self.data, self.targets = torch.load(os.path.join(self.root, self.processed_folder, name))

    def __getitem__(self, index):
        img, target = self.data[index], int(self.targets[index])
        if self.transform is not None:
            img = self.transform(img)
        return img, target

    def __len__(self):
        return len(self.data)

    def _check_exists(self):
        return all(os.path.exists(os.path.join(self.root, self.processed_folder, f))
                   for f in (self.training_file, self.test_file))

    def _fetch(self, kind, path):
        # pretends to be the network
        d = load_digits()
        payload = (d.images * 15).astype(np.uint8) if kind == 'images' else d.target.astype(np.uint8)
        with gzip.open(path, 'wb') as f:
            f.write(payload.tobytes())

    def download(self):
        if self._check_exists():
            return
        raw = os.path.join(self.root, self.raw_folder)
        processed = os.path.join(self.root, self.processed_folder)
        for folder in (raw, processed):
            if not os.path.isdir(folder):
                os.makedirs(folder)
        arrays = {}
        for kind, name in self.names.items():
            path = os.path.join(raw, name)
            print('Downloading ' + name)
            self._fetch(kind, path)
            out = path.replace('.gz', '')
            with open(out, 'wb') as out_f, gzip.open(path) as zip_f:
                out_f.write(zip_f.read())
            os.unlink(path)
            arrays[kind] = np.fromfile(out, dtype=np.uint8)
        print('Processing...')
        x = torch.from_numpy(arrays['images'].reshape(-1, 8, 8))
        y = torch.from_numpy(arrays['labels']).long()
        torch.save((x[:1497], y[:1497]), os.path.join(processed, self.training_file))
        torch.save((x[1497:], y[1497:]), os.path.join(processed, self.test_file))
        print('Done!')


class ToFloat(object):
    def __call__(self, img):
        return img.unsqueeze(0).float().div(240)


class RandomShift(object):
    def __call__(self, img):
        return torch.roll(img, shifts=(int(torch.randint(-1, 2, (1,))), int(torch.randint(-1, 2, (1,)))), dims=(0, 1))


class Compose(object):
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, img):
        for t in self.transforms:
            img = t(img)
        return img
