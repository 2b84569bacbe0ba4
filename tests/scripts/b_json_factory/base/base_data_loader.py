import numpy as np
from torch.utils.data import DataLoader
from torch.utils.data.sampler import SubsetRandomSampler


class BaseDataLoader(DataLoader):
    """A loader that keeps a part of its own data set aside for validation."""

    def __init__(self, dataset, batch_size, shuffle, validation_split, num_workers):
        self.n_samples = len(dataset)
        self.kwargs = dict(dataset=dataset, batch_size=batch_size, num_workers=num_workers)
        self.valid_idx = None
        if validation_split > 0:
            order = np.random.RandomState(0).permutation(len(dataset))
            k = int(len(dataset) * validation_split)
            self.valid_idx = order[:k]
            self.n_samples -= k
            super().__init__(sampler=SubsetRandomSampler(order[k:]), **self.kwargs)
        else:
            super().__init__(shuffle=shuffle, **self.kwargs)

    def split_validation(self):
        if self.valid_idx is None:
            return None
        return DataLoader(sampler=SubsetRandomSampler(self.valid_idx), **self.kwargs)
