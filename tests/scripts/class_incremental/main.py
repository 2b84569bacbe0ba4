import json
import logging
import os
import sys
import random

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

from learner import Learner

args = {
    "prefix": "digits",
    "increment": 5,
    "memory_per_class": 8,
    "batch_size": 32,
    "epochs": 3,
    "lr": 0.05,
    "width": 12,
    "seed": [1993, 1994],
    "gpus": list(range(torch.cuda.device_count())),
}


class DataManager:
    def __init__(self, seed):
        d = load_digits()
        self.order = np.random.RandomState(seed).permutation(10)   # order of the classes
        y = np.argsort(self.order)[d.target]
        x = torch.tensor(d.images / 16, dtype=torch.float32)[:, None]
        y = torch.tensor(y)
        self.parts = {"train": (x[:1300], y[:1300]), "test": (x[1300:], y[1300:])}

    def select(self, part, classes):
        x, y = self.parts[part]
        sel = torch.isin(y, torch.tensor(list(classes)))
        return TensorDataset(x[sel], y[sel])


def train(args):
    for seed in args["seed"]:
        args = dict(args, seed=seed, device="cuda" if torch.cuda.is_available() else "cpu")
        _train(args)


def _train(args):
    logdir = os.path.join("logs", args["prefix"])
    if not os.path.exists(logdir):
        os.makedirs(logdir)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(filename)s] => %(message)s", force=True, handlers=[
        logging.FileHandler(filename=os.path.join(logdir, "%d.log" % args["seed"])), logging.StreamHandler(sys.stdout)])
    _set_random(args["seed"])
    for key, value in args.items():
        logging.info("{}: {}".format(key, value))

    data = DataManager(args["seed"])
    model = Learner(args)
    for task in range(10 // args["increment"]):
        model.incremental_train(data)
        row, ncm = model.eval_task()
        model.after_task()
        logging.info("task {}: {} mean {:.3f}, by class means {:.3f}".format(
            task, np.around(row, 3).tolist(), np.mean(row), ncm))
        model.save_checkpoint(os.path.join(logdir, "seed%d" % args["seed"]))
    with open(os.path.join(logdir, "matrix_%d.json" % args["seed"]), "w") as f:
        json.dump(model.matrix, f)
    if len(model.matrix) > 1:
        logging.info("forgetting {:.3f}".format(model.matrix[0][0] - model.matrix[-1][0]))


def _set_random(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


if __name__ == "__main__":
    train(args)
