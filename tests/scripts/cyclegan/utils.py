import random
import sys
import time
import datetime

import torch


class Logger():
    def __init__(self, n_epochs, n_batches, path='loss.csv'):
        self.n_epochs, self.n_batches = n_epochs, n_batches
        self.epoch = 1
        self.batch = 0
        self.since = time.time()
        self.sums = {}
        self.csv = open(path, 'w')

    def log(self, **losses):
        self.batch += 1
        sys.stdout.write('\repoch %d/%d batch %d/%d ' % (self.epoch, self.n_epochs, self.batch, self.n_batches))
        for k, v in losses.items():
            self.sums[k] = self.sums.get(k, 0.) + v.item()
            sys.stdout.write('%s %.4f ' % (k, self.sums[k] / self.batch))
        done = self.n_batches * (self.epoch - 1) + self.batch
        left = self.n_batches * self.n_epochs - done
        sys.stdout.write('eta %s' % datetime.timedelta(seconds=int(left * (time.time() - self.since) / done)))
        if self.batch == self.n_batches:
            self.csv.write(','.join('%.5f' % (v / self.batch) for v in self.sums.values()) + '\n')
            self.csv.flush()
            self.sums = {}
            self.batch = 0
            self.epoch += 1
            sys.stdout.write('\n')


class ReplayBuffer():
    """old fakes, half of the time handed out instead of new ones"""
    def __init__(self, size=50):
        self.size = size
        self.kept = []

    def push_and_pop(self, batch):
        out = []
        for img in batch.data:
            img = img.unsqueeze(0)
            if len(self.kept) < self.size:
                self.kept.append(img)
                out.append(img)
            elif random.uniform(0, 1) > 0.5:
                k = random.randint(0, self.size - 1)
                out.append(self.kept[k].clone())
                self.kept[k] = img
            else:
                out.append(img)
        return torch.cat(out)


class LambdaLR():
    def __init__(self, n_epochs, offset, decay_start):
        assert n_epochs > decay_start, "nothing left to decay in"
        self.n_epochs, self.offset, self.decay_start = n_epochs, offset, decay_start

    def step(self, epoch):
        late = max(0, epoch + self.offset - self.decay_start)
        return 1.0 - late / (self.n_epochs - self.decay_start)


def weights_init_normal(m):
    if m.__class__.__name__.find('Conv') != -1:
        torch.nn.init.normal_(m.weight.data, 0.0, 0.02)
