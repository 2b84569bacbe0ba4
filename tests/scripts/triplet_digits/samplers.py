import numpy as np
import torch
from torch.utils.data import Sampler


class PKSampler(Sampler):
    """batches of P classes with K samples each"""

    def __init__(self, labels, P, K, iterations):
        self.labels = np.asarray(labels)
        self.classes = np.unique(self.labels)
        self.where = {c: np.nonzero(self.labels == c)[0] for c in self.classes}
        self.P, self.K, self.iterations = P, K, iterations

    def __iter__(self):
        for _ in range(self.iterations):
            batch = []
            for c in np.random.choice(self.classes, self.P, replace=False):
                idx = self.where[c]
                batch.extend(np.random.choice(idx, self.K, replace=len(idx) < self.K).tolist())
            yield batch

    def __len__(self):
        return self.iterations
