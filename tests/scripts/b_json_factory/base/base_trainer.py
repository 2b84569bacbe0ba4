import operator
from abc import ABC, abstractmethod

import torch

from logger import Writer


class BaseTrainer(ABC):
    """Epoch loop, monitoring and checkpoints. Children know how to do one epoch."""

    def __init__(self, model, criterion, metric_ftns, optimizer, config):
        self.config = config
        self.logger = config.get_logger('trainer', config['trainer']['verbosity'])
        self.model = model
        self.criterion = criterion
        self.metric_ftns = metric_ftns
        self.optimizer = optimizer
        opts = config['trainer']
        self.epochs = opts['epochs']
        self.save_period = opts['save_period']
        self.early_stop = opts.get('early_stop', 10 ** 9)
        mode, self.watched = opts['monitor'].split()
        self.is_better = {'min': operator.lt, 'max': operator.gt}[mode]
        self.best = None
        self.start_epoch = 1
        self.writer = Writer(config.log_dir, self.logger, opts['tensorboard'])
        if config.resume is not None:
            self.resume(config.resume)

    @abstractmethod
    def _train_epoch(self, epoch):
        ...

    def train(self):
        waited = 0
        for epoch in range(self.start_epoch, self.epochs + 1):
            log = {'epoch': epoch, **self._train_epoch(epoch)}
            self.logger.info('\n'.join('    %-20s %s' % item for item in log.items()))

            value = log[self.watched]
            improved = self.best is None or self.is_better(value, self.best)
            if improved:
                self.best, waited = value, 0
            else:
                waited += 1
            if epoch % self.save_period == 0:
                self.save('checkpoint-epoch%d.pth' % epoch, epoch)
            if improved:
                self.save('model_best.pth', epoch)
            if waited > self.early_stop:
                self.logger.info('%s has not improved for %d epochs' % (self.watched, waited))
                break
        self.logger.info('best %s: %.5f' % (self.watched, self.best))

    def save(self, name, epoch):
        path = str(self.config.save_dir / name)
        torch.save({'arch': type(self.model).__name__, 'epoch': epoch, 'best': self.best,
                    'state_dict': self.model.state_dict(),
                    'optimizer': self.optimizer.state_dict()}, path)
        self.logger.info('written: ' + path)

    def resume(self, path):
        state = torch.load(str(path))
        if state['arch'] != type(self.model).__name__:
            self.logger.warning('checkpoint is of another architecture: ' + state['arch'])
        self.model.load_state_dict(state['state_dict'])
        self.optimizer.load_state_dict(state['optimizer'])
        self.start_epoch, self.best = state['epoch'] + 1, state['best']
