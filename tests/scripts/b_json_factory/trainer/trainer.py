import torch

from base import BaseTrainer
from utils import MetricTracker


class Trainer(BaseTrainer):
    def __init__(self, model, criterion, metric_ftns, optimizer, config, device, loaders, lr_scheduler=None):
        super().__init__(model, criterion, metric_ftns, optimizer, config)
        self.device = device
        self.data_loader, self.valid_data_loader = loaders
        self.lr_scheduler = lr_scheduler
        self.log_step = max(1, len(self.data_loader) // 4)
        keys = ['loss'] + [f.__name__ for f in metric_ftns]
        self.train_metrics = MetricTracker(*keys, writer=self.writer)
        self.valid_metrics = MetricTracker(*keys, writer=self.writer)

    def _track(self, tracker, loss, output, target):
        tracker.update('loss', loss.item())
        for f in self.metric_ftns:
            tracker.update(f.__name__, f(output, target))

    def _train_epoch(self, epoch):
        self.model.train()
        self.train_metrics.reset()
        for i, batch in enumerate(self.data_loader):
            data, target = [b.to(self.device) for b in batch]
            self.optimizer.zero_grad()
            output = self.model(data)
            loss = self.criterion(output, target)
            loss.backward()
            self.optimizer.step()
            self.writer.set_step((epoch - 1) * len(self.data_loader) + i)
            self._track(self.train_metrics, loss, output, target)
            if i % self.log_step == 0:
                done = i * self.data_loader.batch_size
                self.logger.debug('epoch %d  %d/%d (%.0f%%)  loss %.5f' % (
                    epoch, done, self.data_loader.n_samples, 100. * done / self.data_loader.n_samples, loss.item()))
        log = self.train_metrics.result()
        if self.valid_data_loader is not None:
            log.update({'val_' + k: v for k, v in self._valid_epoch(epoch).items()})
        if self.lr_scheduler is not None:
            self.lr_scheduler.step()
        return log

    @torch.no_grad()
    def _valid_epoch(self, epoch):
        self.model.eval()
        self.valid_metrics.reset()
        for i, batch in enumerate(self.valid_data_loader):
            data, target = [b.to(self.device) for b in batch]
            output = self.model(data)
            self.writer.set_step((epoch - 1) * len(self.valid_data_loader) + i, 'valid')
            self._track(self.valid_metrics, self.criterion(output, target), output, target)
        return self.valid_metrics.result()
