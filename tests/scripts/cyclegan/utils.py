import random
import time
import datetime
import sys

import torch


class Logger():
    def __init__(self, n_epochs, batches_epoch, path='loss.csv'):
        self.n_epochs = n_epochs
        self.batches_epoch = batches_epoch
        self.epoch = 1
        self.batch = 1
        self.start = time.time()
        self.losses = {}
        self.csv = open(path, 'w')

    def log(self, losses=None):
        sys.stdout.write('\rEpoch %03d/%03d [%04d/%04d] -- ' % (self.epoch, self.n_epochs, self.batch, self.batches_epoch))
        for name in losses.keys():
            self.losses[name] = self.losses.get(name, 0.) + losses[name].item()
            sys.stdout.write('%s: %.4f | ' % (name, self.losses[name] / self.batch))

        done = self.batches_epoch * (self.epoch - 1) + self.batch
        left = self.batches_epoch * (self.n_epochs - self.epoch) + self.batches_epoch - self.batch
        sys.stdout.write('ETA: %s' % datetime.timedelta(seconds=int(left * (time.time() - self.start) / done)))

        # End of epoch
        if self.batch % self.batches_epoch == 0:
            self.csv.write(','.join('%.5f' % (v / self.batch) for v in self.losses.values()) + '\n')
            self.csv.flush()
            self.losses = {}
            self.epoch += 1
            self.batch = 1
            sys.stdout.write('\n')
        else:
            self.batch += 1


class ReplayBuffer():
    def __init__(self, max_size=50):
        assert max_size > 0
        self.max_size = max_size
        self.data = []

    def push_and_pop(self, data):
        to_return = []
        for element in data.data:
            element = torch.unsqueeze(element, 0)
            if len(self.data) < self.max_size:
                self.data.append(element)
                to_return.append(element)
            elif random.uniform(0, 1) > 0.5:
                i = random.randint(0, self.max_size - 1)
                to_return.append(self.data[i].clone())
                self.data[i] = element
            else:
                to_return.append(element)
        return torch.cat(to_return)


class LambdaLR():
    def __init__(self, n_epochs, offset, decay_start_epoch):
        assert (n_epochs - decay_start_epoch) > 0, "Decay must start before the end of training!"
        self.n_epochs = n_epochs
        self.offset = offset
        self.decay_start_epoch = decay_start_epoch

    def step(self, epoch):
        return 1.0 - max(0, epoch + self.offset - self.decay_start_epoch) / (self.n_epochs - self.decay_start_epoch)


def weights_init_normal(m):
    classname = m.__class__.__name__
    if classname.find('Conv') != -1:
        torch.nn.init.normal_(m.weight.data, 0.0, 0.02)
