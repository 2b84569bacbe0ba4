import logging


def setup_logging(save_dir):
    root = logging.getLogger()
    fh = logging.FileHandler(save_dir / 'info.log')
    fh.setFormatter(logging.Formatter('%(asctime)s - %(name)s - %(levelname)s - %(message)s'))
    sh = logging.StreamHandler()
    sh.setFormatter(logging.Formatter('%(message)s'))
    root.addHandler(fh)
    root.addHandler(sh)
