import glob
import os
import shutil

import numpy as np
import torch
import torch.nn as nn


class Evaluator(object):
    def __init__(self, num_class):
        self.num_class = num_class
        self.confusion_matrix = np.zeros((num_class,) * 2)

    def Pixel_Accuracy(self):
        return np.diag(self.confusion_matrix).sum() / self.confusion_matrix.sum()

    def _iou(self):
        m = self.confusion_matrix
        return np.diag(m) / (m.sum(axis=1) + m.sum(axis=0) - np.diag(m))

    def Mean_Intersection_over_Union(self):
        return np.nanmean(self._iou())

    def Frequency_Weighted_Intersection_over_Union(self):
        freq = self.confusion_matrix.sum(axis=1) / self.confusion_matrix.sum()
        return (freq[freq > 0] * self._iou()[freq > 0]).sum()

    def add_batch(self, gt, pred):
        assert gt.shape == pred.shape
        mask = (gt >= 0) & (gt < self.num_class)
        idx = self.num_class * gt[mask].astype('int') + pred[mask]
        self.confusion_matrix += np.bincount(idx, minlength=self.num_class ** 2).reshape(self.num_class, -1)

    def reset(self):
        self.confusion_matrix = np.zeros((self.num_class,) * 2)


class SegmentationLosses(object):
    def __init__(self, ignore_index=255, cuda=False):
        self.ignore_index = ignore_index
        self.cuda = cuda

    def build_loss(self, mode='ce'):
        if mode == 'ce':
            return self.cross_entropy
        if mode == 'focal':
            return self.focal
        raise NotImplementedError

    def cross_entropy(self, logit, target):
        criterion = nn.CrossEntropyLoss(ignore_index=self.ignore_index)
        if self.cuda:
            criterion = criterion.cuda()
        return criterion(logit, target.long())

    def focal(self, logit, target, gamma=2, alpha=0.5):
        logpt = -self.cross_entropy(logit, target)
        return -((1 - torch.exp(logpt)) ** gamma) * alpha * logpt


class PolyScheduler(object):
    def __init__(self, base_lr, num_epochs, iters_per_epoch):
        self.lr, self.iters_per_epoch = base_lr, iters_per_epoch
        self.N = num_epochs * iters_per_epoch

    def __call__(self, optimizer, i, epoch):
        lr = self.lr * pow(1 - (epoch * self.iters_per_epoch + i) / self.N, 0.9)
        optimizer.param_groups[0]['lr'] = lr
        for g in optimizer.param_groups[1:]:
            g['lr'] = lr * 10


class Saver(object):
    """run/<dataset>/<checkname>/experiment_<n>"""

    def __init__(self, args):
        self.args = args
        self.directory = os.path.join('run', args.dataset, args.checkname)
        runs = glob.glob(os.path.join(self.directory, 'experiment_*'))
        run_id = max([int(r.split('_')[-1]) for r in runs]) + 1 if runs else 0
        self.experiment_dir = os.path.join(self.directory, 'experiment_{}'.format(run_id))
        if not os.path.exists(self.experiment_dir):
            os.makedirs(self.experiment_dir)

    def save_checkpoint(self, state, is_best, filename='checkpoint.pth.tar'):
        filename = os.path.join(self.experiment_dir, filename)
        torch.save(state, filename)
        if is_best:
            with open(os.path.join(self.experiment_dir, 'best_pred.txt'), 'w') as f:
                f.write(str(state['best_pred']))
            shutil.copyfile(filename, os.path.join(self.directory, 'model_best.pth.tar'))

    def save_experiment_config(self):
        with open(os.path.join(self.experiment_dir, 'parameters.txt'), 'w') as f:
            for k in ('dataset', 'lr', 'loss_type', 'epochs', 'batch_size'):
                f.write(k + ':' + str(getattr(self.args, k)) + '\n')


class _Writer(object):
    def __init__(self, path):
        self.f = open(path, 'w')

    def add_scalar(self, tag, value, step):
        self.f.write('%s %d %.6f\n' % (tag, step, value))

    def close(self):
        self.f.close()


class TensorboardSummary(object):
    def __init__(self, directory):
        self.directory = directory

    def create_summary(self):
        return _Writer(os.path.join(self.directory, 'events.txt'))
