import itertools

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GRID = {'hidden': [16, 32], 'lr': [0.02, 0.005], 'dropout': [0.1]}


class Stopper:
    def __init__(self, patience=3):
        self.patience, self.count, self.best, self.weights = patience, 0, np.inf, None

    def step(self, value, model):
        if value < self.best - 1e-4:
            self.best, self.count = value, 0
            self.weights = {k: v.clone() for k, v in model.state_dict().items()}
        else:
            self.count += 1
        return self.count >= self.patience


def load():
    x, y = load_wine(return_X_y=True)
    xtr, xte, ytr, yte = train_test_split(x, y, test_size=0.3, random_state=0, stratify=y)
    scaler = StandardScaler().fit(xtr)
    as_set = lambda a, b: TensorDataset(torch.tensor(scaler.transform(a), dtype=torch.float32), torch.tensor(b))
    return as_set(xtr, ytr), as_set(xte, yte)


def run(config, train_set, test_set, max_epochs=6):
    torch.manual_seed(0)
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    net = nn.Sequential(nn.Linear(13, config['hidden']), nn.ReLU(), nn.Dropout(config['dropout']), nn.Linear(config['hidden'], 3)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=config['lr'])
    criterion = nn.CrossEntropyLoss()
    train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=16)
    stopper = Stopper()
    for epoch in range(max_epochs):
        net.train()
        for xb, yb in train_loader:
            optimizer.zero_grad()
            criterion(net(xb.to(device)), yb.to(device)).backward()
            optimizer.step()
        net.eval()
        val, right = 0.0, 0
        with torch.no_grad():
            for xb, yb in test_loader:
                out = net(xb.to(device))
                val += criterion(out, yb.to(device)).item() * len(xb)
                right += (out.argmax(1).cpu() == yb).sum().item()
        val, acc = val / len(test_set), right / len(test_set)
        if stopper.step(val, net):
            break
    net.load_state_dict(stopper.weights)
    return net, {'val_loss': stopper.best, 'acc': acc, 'epochs': epoch + 1}


if __name__ == '__main__':
    train_set, test_set = load()
    rows, best = [], {'val_loss': np.inf}
    for values in itertools.product(*GRID.values()):
        config = dict(zip(GRID.keys(), values))
        net, scores = run(config, train_set, test_set)
        rows.append({**config, **scores})
        print(config, ' '.join(f'{k}={v:.4f}' for k, v in scores.items()))
        if scores['val_loss'] < best['val_loss']:
            best = {**scores, 'config': config}
            torch.save(net.state_dict(), 'best.pt')
    table = pd.DataFrame(rows).sort_values('val_loss')
    table.to_csv('grid.csv', index=False)
    print('best:', best['config'])
