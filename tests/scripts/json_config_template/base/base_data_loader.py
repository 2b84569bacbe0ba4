import numpy as np
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import default_collate
from torch.utils.data.sampler import SubsetRandomSampler


class BaseDataLoader(DataLoader):
    """a DataLoader that can give a part of itself away for validation"""

    def __init__(self, dataset, batch_size, shuffle, validation_split, num_workers, collate_fn=default_collate):
        self.validation_split = validation_split
        self.shuffle = shuffle
        self.n_samples = len(dataset)
        self.sampler, self.valid_sampler = self._split_sampler(validation_split)
        self.init_kwargs = {
            'dataset': dataset,
            'batch_size': batch_size,
            'shuffle': self.shuffle,
            'collate_fn': collate_fn,
            'num_workers': num_workers
        }
        super().__init__(sampler=self.sampler, **self.init_kwargs)

    def _split_sampler(self, split):
        if split == 0.0:
            return None, None
        idx_full = np.arange(self.n_samples)
        np.random.seed(0)
        np.random.shuffle(idx_full)
        len_valid = split if isinstance(split, int) else int(self.n_samples * split)
        valid_idx = idx_full[:len_valid]
        train_idx = idx_full[len_valid:]
        # shuffle and sampler exclude each other
        self.shuffle = False
        self.n_samples = len(train_idx)
        return SubsetRandomSampler(train_idx), SubsetRandomSampler(valid_idx)

    def split_validation(self):
        if self.valid_sampler is None:
            return None
        return DataLoader(sampler=self.valid_sampler, **self.init_kwargs)
