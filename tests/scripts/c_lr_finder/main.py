import copy
import math

import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt
import torch
import torch.nn as nn
from sklearn.datasets import make_friedman1
from torch.utils.data import DataLoader, TensorDataset


class Learner:
    def __init__(self, model, train_dl, valid_dl, loss_fn, opt_fn):
        self.model, self.train_dl, self.valid_dl = model, train_dl, valid_dl
        self.loss_fn, self.opt_fn = loss_fn, opt_fn
        self.device = next(model.parameters()).device
        self.lrs, self.losses = [], []

    def one_batch(self, xb, yb, opt):
        loss = self.loss_fn(self.model(xb.to(self.device)).squeeze(1), yb.to(self.device))
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.item()

    def lr_find(self, start=1e-5, end=1.0, num_it=20, beta=0.9):
        state = copy.deepcopy(self.model.state_dict())
        opt = self.opt_fn(self.model.parameters(), start)
        mult = (end / start) ** (1 / num_it)
        lr, avg, best, it = start, 0.0, float('inf'), 0
        lrs, losses = [], []
        self.model.train()
        done = False
        while not done:
            for xb, yb in self.train_dl:
                it += 1
                for g in opt.param_groups:
                    g['lr'] = lr
                loss = self.one_batch(xb, yb, opt)
                avg = beta * avg + (1 - beta) * loss
                smooth = avg / (1 - beta ** it)
                if it >= num_it or smooth > 6 * best:
                    done = True
                    break
                best = min(best, smooth)
                lrs.append(math.log10(lr))
                losses.append(smooth)
                lr *= mult
        self.model.load_state_dict(state)
        plt.plot(lrs, losses)
        plt.savefig('lr_find.png')
        return 10 ** lrs[losses.index(min(losses))] / 10

    def validate(self):
        self.model.eval()
        tot, n = 0.0, 0
        with torch.no_grad():
            for xb, yb in self.valid_dl:
                out = self.model(xb.to(self.device)).squeeze(1)
                tot += ((out - yb.to(self.device)) ** 2).sum().item()
                n += len(yb)
        return math.sqrt(tot / n)

    def fit(self, epochs, max_lr):
        opt = self.opt_fn(self.model.parameters(), max_lr)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr, epochs=epochs, steps_per_epoch=len(self.train_dl))
        for epoch in range(epochs):
            self.model.train()
            for xb, yb in self.train_dl:
                self.losses.append(self.one_batch(xb, yb, opt))
                self.lrs.append(opt.param_groups[0]['lr'])
                sched.step()
            print(f'{epoch}  last {self.losses[-1]:.4f}  rmse {self.validate():.4f}')


torch.manual_seed(1)
X, Y = make_friedman1(n_samples=1500, noise=0.5, random_state=0)
X, Y = torch.tensor(X, dtype=torch.float32), torch.tensor((Y - Y.mean()) / Y.std(), dtype=torch.float32)
train_dl = DataLoader(TensorDataset(X[:1200], Y[:1200]), batch_size=40, shuffle=True)
valid_dl = DataLoader(TensorDataset(X[1200:], Y[1200:]), batch_size=64)
net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
if torch.cuda.is_available():
    net.cuda()
learn = Learner(net, train_dl, valid_dl, nn.MSELoss(), lambda p, lr: torch.optim.Adam(p, lr=lr))
suggested = learn.lr_find()
print('suggested lr: %.2e' % suggested)
learn.fit(3, suggested)
torch.save(learn.model.state_dict(), 'learner.pth')
