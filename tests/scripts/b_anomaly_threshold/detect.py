import argparse
import os
import pickle

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from sklearn.metrics import precision_recall_fscore_support, roc_auc_score
from sklearn.preprocessing import MinMaxScaler
from torch.utils.data import DataLoader, TensorDataset

WINDOW = 20
CHANNELS = 4


def simulate(n, seed, broken):
    r = np.random.RandomState(seed)
    t = np.arange(n)
    base = np.stack([np.sin(t / 9.0), np.cos(t / 7.0), np.sin(t / 9.0) * np.cos(t / 23.0), t % 30 / 30.0], 1)
    x = base + 0.08 * r.randn(n, CHANNELS)
    label = np.zeros(n, dtype=int)
    if broken:
        for s in r.choice(np.arange(50, n - 60), 9, replace=False):
            k = r.randint(8, 25)
            ch = r.randint(CHANNELS)
            x[s:s + k, ch] += r.choice([-1, 1]) * r.uniform(0.5, 1.2)
            label[s:s + k] = 1
    return x, label


def load_windows(data_dir):
    if not os.path.exists(data_dir):
        os.makedirs(data_dir)
    files = [os.path.join(data_dir, f) for f in ('train.npy', 'test.npy', 'test_label.npy')]
    if not all(os.path.exists(f) for f in files):
        print('preparing windows ...')
        train, _ = simulate(3200, 0, False)
        test, label = simulate(2400, 1, True)
        scaler = MinMaxScaler().fit(train)
        with open(os.path.join(data_dir, 'scaler.pkl'), 'wb') as f:
            pickle.dump(scaler, f)
        cut = lambda a: np.stack([a[i:i + WINDOW] for i in range(0, len(a) - WINDOW, 4)])
        np.save(files[0], cut(scaler.transform(train)).astype(np.float32))
        np.save(files[1], cut(scaler.transform(test)).astype(np.float32))
        np.save(files[2], np.array([label[i:i + WINDOW].max() for i in range(0, len(label) - WINDOW, 4)]))
    return [np.load(f) for f in files]


class ConvAE(nn.Module):
    def __init__(self):
        super(ConvAE, self).__init__()
        self.enc = nn.Sequential(nn.Conv1d(CHANNELS, 16, 4, 2, 1), nn.ReLU(), nn.Conv1d(16, 6, 4, 2, 1), nn.ReLU())
        self.dec = nn.Sequential(nn.ConvTranspose1d(6, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose1d(16, CHANNELS, 4, 2, 1))

    def forward(self, x):
        # (batch, time, channel)
        return self.dec(self.enc(x.transpose(1, 2))).transpose(1, 2)


def scores(model, loader, device):
    """one error a window, largest channel counts"""
    model.eval()
    out = np.empty(0, dtype=np.float32)
    with torch.no_grad():
        for (x,) in loader:
            x = x.to(device)
            err = ((model(x) - x) ** 2).mean(1).max(1)[0]
            out = np.concatenate([out, err.cpu().numpy()])
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--data_dir', default='data')
    p.add_argument('--epochs', type=int, default=7)
    p.add_argument('--batch', type=int, default=32)
    args = p.parse_args()
    device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')

    x_train, x_test, y_test = load_windows(args.data_dir)
    train_ds, test_ds = TensorDataset(torch.from_numpy(x_train)), TensorDataset(torch.from_numpy(x_test))
    train_dl = DataLoader(train_ds, args.batch, shuffle=True, drop_last=True)
    score_dl = DataLoader(train_ds, args.batch * 2, shuffle=False)
    test_dl = DataLoader(test_ds, args.batch * 2, shuffle=False)

    model = ConvAE().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    hi = torch.full((CHANNELS,), -1e9)
    lo = torch.full((CHANNELS,), 1e9)
    for epoch in range(args.epochs):
        model.train()
        epoch_loss = []
        for (x,) in train_dl:
            if epoch == 0:
                hi = torch.maximum(hi, x.amax((0, 1)))
                lo = torch.minimum(lo, x.amin((0, 1)))
            x = x.to(device)
            noisy = x + 0.05 * torch.randn_like(x)
            loss = nn.functional.mse_loss(model(noisy), x)
            opt.zero_grad()
            loss.backward()
            opt.step()
            epoch_loss.append(loss.item())
        if epoch == 0:
            print('range per channel', [(round(a, 2), round(b, 2)) for a, b in zip(lo.tolist(), hi.tolist())])
        s = scores(model, test_dl, device)
        print('epoch %d  loss %.5f  test auc %.4f' % (epoch + 1, np.mean(epoch_loss), roc_auc_score(y_test, s)))

    train_scores = scores(model, score_dl, device)
    assert len(train_scores) == len(x_train)
    thr_sigma = train_scores.mean() + 3 * train_scores.std()
    thr_pct = np.percentile(train_scores, 99)
    test_scores = scores(model, test_dl, device)
    for name, thr in (('3 sigma', thr_sigma), ('99 %', thr_pct)):
        pr, rc, f1, _ = precision_recall_fscore_support(y_test, test_scores > thr, average='binary', zero_division=0)
        print('%-8s threshold %.5f  precision %.3f  recall %.3f  f1 %.3f' % (name, thr, pr, rc, f1))

    pd.DataFrame({'time': pd.date_range('2024-01-01', periods=len(test_scores), freq='4min'),
                  'score': test_scores, 'alarm': (test_scores > thr_pct).astype(int), 'label': y_test}
                 ).to_csv('alarms.csv', index=False)
    torch.save({'state_dict': model.state_dict(), 'threshold': float(thr_pct)}, 'detector.pt')


if __name__ == '__main__':
    main()
