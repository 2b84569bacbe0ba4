"""用滚动窗口验证的分位数预测"""
import warnings

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings('ignore')
LOOKBACK, HORIZON, QUANTILES = 24, 6, [0.1, 0.5, 0.9]
DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


def make_series(n=900):
    rs = np.random.RandomState(2)
    k = np.arange(n)
    y = 10 + 3 * np.sin(2 * np.pi * k / 24) + 1.5 * np.sin(2 * np.pi * k / 168) + rs.normal(0, 0.6, n)
    return pd.Series(y, index=pd.date_range('2024-01-01', periods=n, freq='h'))


class Windows(Dataset):
    def __init__(self, values):
        self.v = torch.tensor(values, dtype=torch.float32)

    def __len__(self):
        return len(self.v) - LOOKBACK - HORIZON + 1

    def __getitem__(self, i):
        return self.v[i:i + LOOKBACK], self.v[i + LOOKBACK:i + LOOKBACK + HORIZON]


class QuantileNet(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, HORIZON * len(QUANTILES))

    def forward(self, x):
        _, h = self.gru(x.unsqueeze(-1))
        return self.out(h[-1]).view(-1, HORIZON, len(QUANTILES))


def pinball(pred, y):
    losses = []
    for i, q in enumerate(QUANTILES):
        e = y - pred[:, :, i]
        losses.append(torch.max((q - 1) * e, q * e).unsqueeze(-1))
    return torch.mean(torch.sum(torch.cat(losses, dim=-1), dim=-1))


def train_window(history, epochs=2):
    mean, std = history.mean(), history.std()
    loader = DataLoader(Windows((history - mean) / std), batch_size=32, shuffle=True)
    model = QuantileNet().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for ep in range(epochs):
        model.train()
        total = 0
        for x, y in loader:
            x, y = x.to(DEVICE), y.to(DEVICE)
            optimizer.zero_grad()
            loss = pinball(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print('  第%d轮 训练损失 %.4f' % (ep + 1, total / len(loader)))
    return model, mean, std


def predict_window(model, values, mean, std):
    model.eval()
    rows = []
    with torch.no_grad():
        for x, y in DataLoader(Windows((values - mean) / std), batch_size=64):
            rows.append(torch.cat([model(x.to(DEVICE)).cpu(), y.unsqueeze(-1)], dim=-1).numpy())
    return np.concatenate(rows) * std + mean


def main():
    torch.manual_seed(0)
    series = make_series()
    cuts = [500, 620]
    scores = []
    for w, cut in enumerate(cuts):
        print('窗口', w, '训练到', series.index[cut])
        model, mean, std = train_window(series.values[:cut])
        pred = predict_window(model, series.values[cut - LOOKBACK:cut + 120], mean, std)
        lo, mid, hi, true = (pred[..., i] for i in range(4))
        scores.append({'window': w, 'mae': np.abs(mid - true).mean(), 'coverage': ((true >= lo) & (true <= hi)).mean()})
    df = pd.DataFrame(scores)
    df.to_csv('scores.csv', index=False)
    print(df.round(4).to_string())
    torch.save(model, 'last_window.pkl')


if __name__ == '__main__':
    main()
