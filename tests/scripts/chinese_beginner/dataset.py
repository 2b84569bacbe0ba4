"""十类小图片（自己生成的），用法和 torchvision.datasets.CIFAR10 一样"""
import os
import pickle

import numpy as np
from PIL import Image
from torch.utils.data import Dataset


def _paint(rng, label, size=32):
    y, x = np.mgrid[0:size, 0:size] / float(size)
    freq = 1 + label % 5
    phase = rng.uniform(0, 2 * np.pi)
    wave = np.sin(2 * np.pi * freq * (x if label < 5 else y) + phase)
    img = np.stack([wave * np.cos(label), wave * np.sin(label), -wave], axis=-1)
    img = 128 + 70 * img + rng.normal(0, 25, (size, size, 3))
    return img.clip(0, 255).astype(np.uint8)


class CIFAR10(Dataset):
    base_folder = 'cifar-10-batches-py'
    train_list = ['data_batch_1', 'data_batch_2']
    test_list = ['test_batch']

    def __init__(self, root, train=True, transform=None, download=False):
        self.root = root
        self.transform = transform
        self.train = train
        if download:
            self.download()
        self.data = []
        self.targets = []
        for name in (self.train_list if train else self.test_list):
            path = os.path.join(self.root, self.base_folder, name)
            with open(path, 'rb') as f:
                entry = pickle.load(f)
            self.data.append(entry['data'])
            self.targets.extend(entry['labels'])
        self.data = np.vstack(self.data)

    def download(self):
        folder = os.path.join(self.root, self.base_folder)
        if os.path.exists(os.path.join(folder, self.test_list[-1])):
            print('Files already downloaded and verified')
            return
        if not os.path.isdir(folder):
            os.makedirs(folder)
        for i, name in enumerate(self.train_list + self.test_list):
            rng = np.random.RandomState(100 + i)
            labels = [int(v) for v in rng.randint(0, 10, 200)]
            data = np.stack([_paint(rng, l) for l in labels])
            with open(os.path.join(folder, name), 'wb') as f:
                pickle.dump({'data': data, 'labels': labels}, f)

    def __getitem__(self, index):
        img, target = Image.fromarray(self.data[index]), self.targets[index]
        if self.transform is not None:
            img = self.transform(img)
        return img, target

    def __len__(self):
        return len(self.data)
