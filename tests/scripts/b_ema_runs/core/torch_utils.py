import math
from copy import deepcopy

import torch
import torch.nn as nn


def select_device(device=''):
    cpu = device == 'cpu' or not torch.cuda.is_available()
    if device and not cpu:
        assert int(device) < torch.cuda.device_count(), f'no card {device}'
    s = 'CPU' if cpu else torch.cuda.get_device_properties(0).name
    print(f'Using {s}')
    return torch.device('cpu' if cpu else f'cuda:{device or 0}')


def de_parallel(model):
    return model.module if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)) else model


def copy_attr(a, b, exclude=()):
    for k, v in b.__dict__.items():
        if k.startswith('_') or k in exclude:
            continue
        setattr(a, k, v)


class ModelEMA:
    """Moving average of everything in the state_dict, buffers too"""

    def __init__(self, model, decay=0.999, tau=60):
        self.ema = deepcopy(de_parallel(model)).eval()
        self.updates = 0
        self.decay = lambda x: decay * (1 - math.exp(-x / tau))
        for p in self.ema.parameters():
            p.requires_grad_(False)

    def update(self, model):
        self.updates += 1
        d = self.decay(self.updates)
        msd = de_parallel(model).state_dict()
        with torch.no_grad():
            for k, v in self.ema.state_dict().items():
                if v.dtype.is_floating_point:
                    v *= d
                    v += (1 - d) * msd[k].detach()

    def update_attr(self, model):
        copy_attr(self.ema, model)


class EarlyStopping:
    def __init__(self, patience=30):
        self.best_fitness = 0.0
        self.best_epoch = 0
        self.patience = patience or float('inf')

    def __call__(self, epoch, fitness):
        if fitness >= self.best_fitness:
            self.best_epoch = epoch
            self.best_fitness = fitness
        stop = (epoch - self.best_epoch) >= self.patience
        if stop:
            print(f'EarlyStopping: no improvement in the last {self.patience} epochs, best was epoch {self.best_epoch}')
        return stop
