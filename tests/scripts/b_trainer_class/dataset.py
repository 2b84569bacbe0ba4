import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, Dataset


class DigitsDataset(Dataset):
    def __init__(self, images, labels, augment=False):
        self.images = images.astype(np.float32) / 16.0
        self.labels = labels.astype(np.int64)
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        img = torch.from_numpy(self.images[idx]).unsqueeze(0)
        if self.augment:
            img = img + 0.05 * torch.randn_like(img)
        return img, int(self.labels[idx])


def get_loaders(batch_size):
    digits = load_digits()
    x_train, x_test, y_train, y_test = train_test_split(
        digits.images, digits.target, test_size=0.2, random_state=0, stratify=digits.target)
    x_train, x_val, y_train, y_val = train_test_split(
        x_train, y_train, test_size=0.15, random_state=0, stratify=y_train)

    train_loader = DataLoader(DigitsDataset(x_train, y_train, augment=True), batch_size=batch_size,
                              shuffle=True, drop_last=True)
    val_loader = DataLoader(DigitsDataset(x_val, y_val), batch_size=batch_size, shuffle=False)
    test_loader = DataLoader(DigitsDataset(x_test, y_test), batch_size=batch_size, shuffle=False)
    return train_loader, val_loader, test_loader
