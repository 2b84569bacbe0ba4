import numpy as np


def random_point_dropout(batch_pc, max_dropout_ratio=0.6):
    for b in range(batch_pc.shape[0]):
        ratio = np.random.random() * max_dropout_ratio
        drop = np.where(np.random.random(batch_pc.shape[1]) <= ratio)[0]
        if len(drop) > 0:
            batch_pc[b, drop, :] = batch_pc[b, 0, :]
    return batch_pc


def random_scale(batch, low=0.8, high=1.25):
    return batch * np.random.uniform(low, high, (batch.shape[0], 1, 1))


def shift(batch, by=0.1):
    return batch + np.random.uniform(-by, by, (batch.shape[0], 1, 3))
