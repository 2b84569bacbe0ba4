import torch
from sklearn.datasets import load_digits
from torch.utils.data import Dataset


class ImbalancedDigits(Dataset):
    """digits 5-9 are four times rarer in training"""

    def __init__(self, train, transforms=None):
        d = load_digits()
        x, y = torch.tensor(d.images, dtype=torch.float32), torch.tensor(d.target)
        if train:
            x, y = x[:1350], y[:1350]
            keep = (y < 5) | (torch.arange(len(y)) % 4 == 0)
            x, y = x[keep], y[keep]
        else:
            x, y = x[1350:], y[1350:]
        self.images, self.labels = x, y
        self.transforms = transforms

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        img = self.images[index]
        if self.transforms is not None:
            img = self.transforms(img)
        return img, self.labels[index]
