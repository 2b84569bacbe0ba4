import os
import shutil

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset


class AvgMeter(object):
    def __init__(self):
        self.avg = 0
        self.sum = 0
        self.cnt = 0

    def update(self, val, n=1):
        self.sum += val * n
        self.cnt += n
        self.avg = self.sum / self.cnt


def accuracy(output, target, topk=(1,)):
    _, pred = output.topk(max(topk), 1, True, True)
    hit = pred.eq(target.unsqueeze(1))
    return [hit[:, :k].float().sum() * (100.0 / target.size(0)) for k in topk]


def digits():
    d = load_digits()
    x = torch.tensor((d.images - 4.9) / 6.0, dtype=torch.float32).unsqueeze(1)
    y = torch.tensor(d.target)
    return TensorDataset(x[:1200], y[:1200]), TensorDataset(x[1200:], y[1200:])


def count_parameters_in_MB(model):
    return sum(np.prod(v.size()) for name, v in model.named_parameters() if "auxiliary" not in name) / 1e6


def save(model, model_path):
    torch.save(model.state_dict(), model_path)


def drop_path(x, drop_prob):
    keep = 1. - drop_prob
    mask = x.new_empty(x.size(0), 1, 1, 1).bernoulli_(keep)
    return x / keep * mask


def create_exp_dir(path, scripts_to_save=None):
    if not os.path.exists(path):
        os.mkdir(path)
    print('Experiment dir : {}'.format(path))
    if scripts_to_save is not None:
        os.mkdir(os.path.join(path, 'scripts'))
        for script in scripts_to_save:
            shutil.copyfile(script, os.path.join(path, 'scripts', os.path.basename(script)))
