import os
import random

import numpy as np
import torch


class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class EarlyStop:
    """keeps the best model on disk, flips .stop when the score has not moved for `patience` epochs"""

    def __init__(self, patience=3, higher_is_better=True):
        self.patience = patience
        self.sign = 1 if higher_is_better else -1
        self.best = -np.inf
        self.wait = 0
        self.stop = False

    def step(self, score, model, path):
        if self.sign * score > self.best + 1e-4:
            print(f"score {score:.5f} is better than {abs(self.best):.5f}, writing {path}")
            self.best = self.sign * score
            self.wait = 0
            torch.save(model.state_dict(), path)
            return
        self.wait += 1
        print(f"no improvement for {self.wait} epoch(s)")
        if self.wait >= self.patience:
            self.stop = True


def seed_everything(seed):
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
