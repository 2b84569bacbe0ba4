import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


def fetch_dataloader(types, params):
    d = load_digits()
    x = torch.tensor(d.data / 16., dtype=torch.float32)
    y = torch.tensor(d.target)
    train = TensorDataset(x[:1300], y[:1300])
    dev = TensorDataset(x[1300:], y[1300:])
    dl = {}
    for t in types:
        if t == 'train':
            dl[t] = DataLoader(train, batch_size=params.batch_size, shuffle=True, pin_memory=params.cuda)
        else:
            dl[t] = DataLoader(dev, batch_size=params.batch_size, shuffle=False, pin_memory=params.cuda)
    return dl
