import logging
import logging.handlers
import sys


def setup_logging(save_dir, level=logging.INFO):
    root = logging.getLogger()
    root.setLevel(level)
    for h in (logging.StreamHandler(sys.stdout),
              logging.handlers.RotatingFileHandler(str(save_dir / 'info.log'), maxBytes=10485760, backupCount=3)):
        h.setFormatter(logging.Formatter('%(asctime)s - %(name)s - %(message)s'))
        root.addHandler(h)
