import csv

import torch


class Callback:
    model = None

    def set_model(self, model):
        self.model = model

    def on_train_begin(self): pass
    def on_epoch_begin(self, epoch): pass
    def on_batch_end(self, batch, logs): pass
    def on_epoch_end(self, epoch, logs): pass
    def on_train_end(self): pass


class CSVLogger(Callback):
    def __init__(self, path):
        self.path = path

    def on_train_begin(self):
        self.f = open(self.path, 'w', newline='')
        self.w = None

    def on_epoch_end(self, epoch, logs):
        if self.w is None:
            self.w = csv.DictWriter(self.f, ['epoch'] + list(logs))
            self.w.writeheader()
        self.w.writerow({'epoch': epoch, **logs})
        self.f.flush()

    def on_train_end(self):
        self.f.close()


class EarlyStopping(Callback):
    def __init__(self, monitor='val_loss', patience=2, restore=True):
        self.monitor, self.patience, self.restore = monitor, patience, restore

    def on_train_begin(self):
        self.best, self.wait, self.weights = float('inf'), 0, None

    def on_epoch_end(self, epoch, logs):
        if logs[self.monitor] < self.best - 1e-4:
            self.best, self.wait = logs[self.monitor], 0
            self.weights = {k: v.clone() for k, v in self.model.net.state_dict().items()}
        else:
            self.wait += 1
            if self.wait > self.patience:
                print('early stop in epoch', epoch)
                self.model.stop_training = True

    def on_train_end(self):
        if self.restore and self.weights is not None:
            self.model.net.load_state_dict(self.weights)


class LRSchedule(Callback):
    def __init__(self, fn):
        self.fn = fn

    def on_epoch_begin(self, epoch):
        for g in self.model.optimizer.param_groups:
            g['lr'] = self.fn(epoch, g['lr'])


class HoldoutCheckpoint(Callback):
    """evaluates on data of its own every few epochs and saves when it is the best so far"""

    def __init__(self, x, y, path, every=2):
        self.x, self.y, self.path, self.every = x, y, path, every
        self.best = 0.0

    def on_epoch_end(self, epoch, logs):
        if (epoch + 1) % self.every:
            return
        score = self.model.evaluate(self.x, self.y, verbose=False)['acc']
        if score > self.best:
            self.best = score
            torch.save({'weights': self.model.net.state_dict(), 'epoch': epoch, 'score': score}, self.path)
            print('   holdout %.4f, saved' % score)
