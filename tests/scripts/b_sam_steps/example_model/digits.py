import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class Digits:
    def __init__(self, batch_size):
        d = load_digits()
        x = torch.tensor(d.images, dtype=torch.float32).unsqueeze(1)
        x = (x - x.mean()) / x.std()
        y = torch.tensor(d.target)
        self.train = DataLoader(TensorDataset(x[:1300], y[:1300]), batch_size=batch_size, shuffle=True)
        self.test = DataLoader(TensorDataset(x[1300:], y[1300:]), batch_size=batch_size, shuffle=False)
        self.classes = [str(i) for i in range(10)]
