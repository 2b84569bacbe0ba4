import numpy as np
from torch.utils.data.sampler import BatchSampler


class BalancedBatchSampler(BatchSampler):
    """every batch: P classes, K samples of each"""

    def __init__(self, labels, P, K, n_batches):
        self.labels = labels.numpy()
        self.P, self.K = P, K
        self.n_batches = n_batches
        self.classes = sorted(set(self.labels.tolist()))
        self.where = {c: np.where(self.labels == c)[0] for c in self.classes}
        self.used = {c: 0 for c in self.classes}
        for c in self.classes:
            np.random.shuffle(self.where[c])

    def __iter__(self):
        for _ in range(self.n_batches):
            batch = []
            for c in np.random.choice(self.classes, self.P, replace=False):
                if self.used[c] + self.K > len(self.where[c]):
                    np.random.shuffle(self.where[c])
                    self.used[c] = 0
                s = self.used[c]
                batch.extend(self.where[c][s:s + self.K].tolist())
                self.used[c] += self.K
            yield batch

    def __len__(self):
        return self.n_batches
