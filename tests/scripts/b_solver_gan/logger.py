import json
import os


class Logger(object):
    """scalar_summary(tag, value, step) -> one json line"""

    def __init__(self, log_dir):
        self.file = open(os.path.join(log_dir, 'scalars.jsonl'), 'w')

    def scalar_summary(self, tag, value, step):
        self.file.write(json.dumps([tag, float(value), step]) + '\n')
        self.file.flush()
