import json
import logging
import os
import shutil

import torch


class Params():
    """params = Params(path); params.learning_rate"""

    def __init__(self, json_path):
        with open(json_path) as f:
            self.__dict__.update(json.load(f))

    @property
    def dict(self):
        return self.__dict__


class RunningAverage():
    def __init__(self):
        self.steps = 0
        self.total = 0

    def update(self, val):
        self.total += val
        self.steps += 1

    def __call__(self):
        return self.total / float(self.steps)


def set_logger(log_path):
    logger = logging.getLogger()
    logger.setLevel(logging.INFO)
    if not logger.handlers:
        fh = logging.FileHandler(log_path)
        fh.setFormatter(logging.Formatter('%(asctime)s:%(levelname)s: %(message)s'))
        logger.addHandler(fh)
        sh = logging.StreamHandler()
        sh.setFormatter(logging.Formatter('%(message)s'))
        logger.addHandler(sh)


def save_dict_to_json(d, json_path):
    with open(json_path, 'w') as f:
        json.dump({k: float(v) for k, v in d.items()}, f, indent=4)


def save_checkpoint(state, is_best, folder):
    last = os.path.join(folder, 'last.pth.tar')
    if not os.path.exists(folder):
        os.mkdir(folder)
    torch.save(state, last)
    if is_best:
        shutil.copyfile(last, os.path.join(folder, 'best.pth.tar'))


def load_checkpoint(path, model, optimizer=None):
    ckpt = torch.load(path)
    model.load_state_dict(ckpt['state_dict'])
    if optimizer is not None:
        optimizer.load_state_dict(ckpt['optim_dict'])
    return ckpt
