import errno
import os
import os.path as osp
import sys

import torch
import torch.nn as nn


def mkdir_if_missing(directory):
    if not osp.exists(directory):
        try:
            os.makedirs(directory)
        except OSError as e:
            if e.errno != errno.EEXIST:
                raise


class Converged(Exception):
    pass


class AverageMeter(object):
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class Logger(object):
    """console and file at once: sys.stdout = Logger('log.txt')"""

    def __init__(self, fpath=None):
        self.console = sys.stdout
        self.file = open(fpath, 'w') if fpath is not None else None

    def write(self, msg):
        self.console.write(msg)
        if self.file is not None:
            self.file.write(msg)

    def flush(self):
        self.console.flush()
        if self.file is not None:
            self.file.flush()
            os.fsync(self.file.fileno())


class CenterLoss(nn.Module):
    def __init__(self, num_classes, feat_dim):
        super(CenterLoss, self).__init__()
        self.centers = nn.Parameter(torch.randn(num_classes, feat_dim))

    def forward(self, x, labels):
        return (x - self.centers[labels]).pow(2).sum(dim=1).clamp(min=1e-12, max=1e+12).mean()
