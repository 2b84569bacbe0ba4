import argparse
import csv
import datetime
import glob
import multiprocessing as mp
import os
import sys
import time
import wave

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset

RATE = 4000
LABELS = ['up', 'down', 'stop', 'go', '_silence_']


class Tee:
    """what is printed goes into a file as well"""
    def __init__(self, path):
        self.out, self.f = sys.stdout, open(path, 'a')

    def write(self, s):
        self.out.write(s)
        self.f.write(s)

    def flush(self):
        self.out.flush()
        self.f.flush()


def synth(label, rng):
    t = np.arange(RATE) / RATE
    f0 = rng.uniform(250, 350)
    if label == 'up':
        x = np.sin(2 * np.pi * (f0 * t + 300 * t ** 2))
    elif label == 'down':
        x = np.sin(2 * np.pi * ((f0 + 600) * t - 300 * t ** 2))
    elif label == 'stop':
        x = np.sin(2 * np.pi * f0 * t) * (t < 0.4)
    elif label == 'go':
        x = np.sin(2 * np.pi * f0 * t) * (np.sin(2 * np.pi * 8 * t) > 0)
    else:
        x = np.zeros_like(t)
    return 0.5 * x + rng.normal(0, 0.15, RATE)


def write_wavs(root, n=48):
    rng = np.random.RandomState(12)
    for label in LABELS:
        os.makedirs(os.path.join(root, label))
        for i in range(n):
            pcm = (synth(label, rng).clip(-1, 1) * 32767).astype('<i2')
            with wave.open(os.path.join(root, label, '%03d.wav' % i), 'wb') as w:
                w.setnchannels(1)
                w.setsampwidth(2)
                w.setframerate(RATE)
                w.writeframes(pcm.tobytes())


def features(path):
    """log spectrogram 33 x 30"""
    with wave.open(path, 'rb') as w:
        x = np.frombuffer(w.readframes(w.getnframes()), dtype='<i2').astype(np.float32) / 32768
    frames = np.stack([x[i:i + 128] * np.hanning(128) for i in range(0, len(x) - 128, 129)])
    spec = np.abs(np.fft.rfft(frames))[:, ::2]
    return np.log(spec + 1e-3).T.astype(np.float32)


class SpeechCommands(Dataset):
    def __init__(self, root, cache, workers=2):
        self.paths = glob.glob(os.path.join(root, '*', '*.wav'))
        self.targets = [LABELS.index(os.path.basename(os.path.dirname(p))) for p in self.paths]
        if os.path.exists(cache):
            self.feats = np.load(cache)
        else:
            print('computing features of', len(self.paths), 'files')
            with mp.Pool(workers) as pool:
                self.feats = np.stack(pool.map(features, self.paths, chunksize=20))
            np.save(cache, self.feats)
        self.feats = (self.feats - self.feats.mean()) / self.feats.std()

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        x = torch.from_numpy(self.feats[i]).unsqueeze(0)
        return x, self.targets[i], self.paths[i]


class KWS(nn.Module):
    def __init__(self, n=len(LABELS)):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, (7, 5), padding=(3, 2))
        self.bn1 = nn.BatchNorm2d(12)
        self.conv2 = nn.Conv2d(12, 16, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(16)
        self.lin = nn.Linear(16 * 8 * 7, n)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.lin(F.dropout(x.flatten(1), 0.2, self.training))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--root', default='speech')
    ap.add_argument('--cache', default='features.npy')
    ap.add_argument('--epochs', type=int, default=30)
    ap.add_argument('--batch-size', type=int, default=16)
    ap.add_argument('--lr', type=float, default=3e-3)
    ap.add_argument('--max-minutes', type=float, default=60)
    ap.add_argument('--init', default='', help='weights to begin with')
    args = ap.parse_args()

    stamp = datetime.datetime.now().strftime('%Y-%m-%d_%H-%M-%S')
    run = os.path.join('runs', stamp)
    os.makedirs(run)
    sys.stdout = Tee(os.path.join(run, 'stdout.txt'))

    if not os.path.isdir(args.root):
        write_wavs(args.root)
    data = SpeechCommands(args.root, args.cache)
    idx = np.random.permutation(len(data))
    n_val = len(data) // 5
    train_dl = DataLoader(Subset(data, idx[n_val:]), args.batch_size, shuffle=True)
    val_dl = DataLoader(Subset(data, idx[:n_val]), args.batch_size)
    print(len(train_dl.dataset), 'to train,', len(val_dl.dataset), 'to validate')

    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    net = KWS().to(device)
    net = nn.DataParallel(net)
    if args.init:
        net.module.load_state_dict(torch.load(args.init))
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)

    begin = time.time()
    best = 0
    for epoch in range(args.epochs):
        net.train()
        tot = 0.
        for x, y, _ in train_dl:
            x, y = x.to(device), y.to(device)
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += loss.item()

        net.eval()
        right = 0
        wrong = []
        with torch.no_grad():
            for x, y, paths in val_dl:
                pred = net(x.to(device)).argmax(1).cpu()
                right += (pred == y).sum().item()
                wrong += [(p, LABELS[t], LABELS[q]) for p, t, q in zip(paths, y.tolist(), pred.tolist()) if t != q]
        acc = right / len(val_dl.dataset)
        print('%3d loss %.4f val %.4f (%d wrong) %.1fs' % (epoch, tot / len(train_dl), acc, len(wrong), time.time() - begin))
        if acc >= best:
            best = acc
            torch.save(net.module.state_dict(), os.path.join(run, 'kws.pt'))
            with open(os.path.join(run, 'wrong.csv'), 'w', newline='') as f:
                w = csv.writer(f)
                w.writerow(['file', 'truth', 'said'])
                w.writerows(wrong)

        if time.time() - begin > args.max_minutes * 60:
            print('out of time')
            break

    net.module.load_state_dict(torch.load(os.path.join(run, 'kws.pt')))
    net.eval()
    per_class = {}
    with torch.no_grad():
        for c, name in enumerate(LABELS):
            sel = [i for i in idx[:n_val] if data.targets[i] == c]
            out = net(torch.stack([data[i][0] for i in sel]).to(device))
            per_class[name] = (out.argmax(1) == c).float().mean().item()
    print('best %.4f' % best, per_class)


if __name__ == '__main__':
    main()
