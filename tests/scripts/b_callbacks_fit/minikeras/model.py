import sys
import time
from collections import OrderedDict

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset


def _as_tensor(a):
    a = np.asarray(a)
    return torch.tensor(a, dtype=torch.float32 if a.dtype.kind == 'f' else torch.int64)


class Model:
    def __init__(self, net, device=None):
        self.device = device or torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        self.net = net.to(self.device)
        self.stop_training = False
        self.history = {}

    def compile(self, optimizer, loss, metrics=None):
        self.optimizer = optimizer(self.net.parameters())
        self.loss = loss
        self.metrics = metrics or {}

    def train_on_batch(self, x, y):
        self.net.train()
        x, y = x.to(self.device), y.to(self.device)
        out = self.net(x)
        loss = self.loss(out, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return self._logs(loss, out, y)

    @torch.no_grad()
    def test_on_batch(self, x, y):
        self.net.eval()
        x, y = x.to(self.device), y.to(self.device)
        out = self.net(x)
        return self._logs(self.loss(out, y), out, y)

    def _logs(self, loss, out, y):
        logs = OrderedDict(loss=loss.item())
        for name, fn in self.metrics.items():
            logs[name] = fn(out.detach(), y).item()
        return logs

    def fit(self, x, y, epochs=1, batch_size=32, validation_split=0.0, callbacks=(), verbose=True):
        x, y = _as_tensor(x), _as_tensor(y)
        val = None
        if validation_split:
            cut = int(len(x) * (1 - validation_split))
            val = (x[cut:], y[cut:])
            x, y = x[:cut], y[:cut]
        loader = DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True)
        for cb in callbacks:
            cb.set_model(self)
            cb.on_train_begin()
        for epoch in range(epochs):
            for cb in callbacks:
                cb.on_epoch_begin(epoch)
            start, seen, sums = time.time(), 0, {}
            for i, (xb, yb) in enumerate(loader):
                logs = self.train_on_batch(xb, yb)
                for k, v in logs.items():
                    sums[k] = sums.get(k, 0.0) + v * len(xb)
                seen += len(xb)
                for cb in callbacks:
                    cb.on_batch_end(i, logs)
                if verbose:
                    done = int(20 * (i + 1) / len(loader))
                    sys.stdout.write('\r%d/%d [%s%s]' % (seen, len(x), '=' * done, '.' * (20 - done)))
            logs = {k: v / seen for k, v in sums.items()}
            if val is not None:
                logs.update({'val_' + k: v for k, v in self.evaluate(*val, verbose=False).items()})
            if verbose:
                print(' %.1fs  ' % (time.time() - start) + '  '.join('%s %.4f' % kv for kv in logs.items()))
            for k, v in logs.items():
                self.history.setdefault(k, []).append(v)
            for cb in callbacks:
                cb.on_epoch_end(epoch, logs)
            if self.stop_training:
                break
        for cb in callbacks:
            cb.on_train_end()
        return self.history

    def evaluate(self, x, y, batch_size=64, verbose=True):
        loader = DataLoader(TensorDataset(_as_tensor(x), _as_tensor(y)), batch_size=batch_size)
        sums, n = {}, 0
        for xb, yb in loader:
            for k, v in self.test_on_batch(xb, yb).items():
                sums[k] = sums.get(k, 0.0) + v * len(xb)
            n += len(xb)
        res = {k: v / n for k, v in sums.items()}
        if verbose:
            print('evaluate:', {k: round(v, 4) for k, v in res.items()})
        return res

    @torch.no_grad()
    def predict(self, x, batch_size=64):
        self.net.eval()
        out = []
        for (xb,) in DataLoader(TensorDataset(_as_tensor(x)), batch_size=batch_size):
            out.append(self.net(xb.to(self.device)).cpu().numpy())
        return np.concatenate(out)
