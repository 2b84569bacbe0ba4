"""SummaryWriter without tensorboard, add_scalar writes csv"""
import os


class SummaryWriter:
    def __init__(self, log_dir=None):
        self.log_dir = log_dir or 'runs/default'
        os.makedirs(self.log_dir)
        self._f = open(os.path.join(self.log_dir, 'events.csv'), 'w')

    def add_scalar(self, tag, value, global_step=None):
        self._f.write('%s,%g,%s\n' % (tag, float(value.detach()) if hasattr(value, 'detach') else value, global_step))

    def close(self):
        self._f.close()
