try:
    from tensorboardX import SummaryWriter
except ImportError:
    import os

    class SummaryWriter(object):
        def __init__(self, logdir='runs'):
            if not os.path.isdir(logdir):
                os.mkdir(logdir)
            self.f = open(os.path.join(logdir, 'scalars.csv'), 'w')

        def add_scalar(self, tag, value, step):
            self.f.write('%s,%d,%f\n' % (tag, step, value))
