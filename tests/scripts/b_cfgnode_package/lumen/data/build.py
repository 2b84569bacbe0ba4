import torch
from torch.utils import data

from .datasets import ImbalancedDigits
from .transforms import build_transforms


def make_sampler(dataset):
    counts = torch.bincount(dataset.labels, minlength=10).float()
    weights = (1.0 / counts)[dataset.labels]
    return data.sampler.WeightedRandomSampler(weights, len(dataset), replacement=True)


def make_data_loader(cfg, is_train=True):
    transforms = build_transforms(cfg, is_train)
    datasets = ImbalancedDigits(is_train, transforms)
    if is_train:
        batch_size = cfg.SOLVER.IMS_PER_BATCH
        sampler = make_sampler(datasets) if cfg.DATALOADER.BALANCED else None
        shuffle = sampler is None
    else:
        batch_size = cfg.TEST.IMS_PER_BATCH
        sampler = None
        shuffle = False
    return data.DataLoader(datasets, batch_size=batch_size, shuffle=shuffle, sampler=sampler,
                           num_workers=cfg.DATALOADER.NUM_WORKERS)
