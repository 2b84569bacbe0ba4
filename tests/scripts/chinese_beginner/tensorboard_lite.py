import json
import os
import time


class SummaryWriter:
    """没装 tensorboard 时的替代品，每个标量写一行 json"""

    def __init__(self, log_dir):
        os.makedirs(log_dir, exist_ok=True)
        self.f = open(os.path.join(log_dir, 'events.%d.json' % time.time()), 'a')

    def add_scalar(self, tag, value, step):
        self.f.write(json.dumps({'tag': tag, 'value': float(value), 'step': step}) + '\n')

    def close(self):
        self.f.close()
