from datetime import datetime


class Writer():
    """tensorboard if it is there, a text file if not"""

    def __init__(self, log_dir, logger, enabled):
        self.step = 0
        self.mode = ''
        self.timer = datetime.now()
        self.file = None
        if enabled:
            try:
                from torch.utils.tensorboard import SummaryWriter
                self.writer = SummaryWriter(str(log_dir))
            except ImportError:
                logger.warning('tensorboard is not installed, scalars go to scalars.txt')
                self.writer = None
                self.file = open(log_dir / 'scalars.txt', 'w')

    def set_step(self, step, mode='train'):
        self.mode = mode
        self.step = step
        if step > 0:
            d = datetime.now() - self.timer
            self.add_scalar('steps_per_sec', 1 / max(d.total_seconds(), 1e-6))
        self.timer = datetime.now()

    def add_scalar(self, tag, value):
        if self.file is not None:
            self.file.write('%s/%s %d %g\n' % (tag, self.mode, self.step, value))
        elif self.writer is not None:
            self.writer.add_scalar('%s/%s' % (tag, self.mode), value, self.step)
