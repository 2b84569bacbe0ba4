import os

import numpy as np
import pandas as pd
import torch
from torch.utils.data import TensorDataset

from base import BaseDataLoader


class HouseDataLoader(BaseDataLoader):
    """made-up houses: area, rooms, age, distance ... -> price"""

    def __init__(self, data_dir, batch_size, shuffle=True, validation_split=0.0, num_workers=1):
        self.data_dir = data_dir
        path = os.path.join(data_dir, 'houses.csv')
        if not os.path.exists(path):
            os.makedirs(data_dir, exist_ok=True)
            self._make(path)
        df = pd.read_csv(path)
        x = df.drop(columns='price')
        x = (x - x.mean()) / x.std()
        self.dataset_ = TensorDataset(torch.tensor(x.values, dtype=torch.float32),
                                      torch.tensor(df.price.values, dtype=torch.float32))
        super().__init__(self.dataset_, batch_size, shuffle, validation_split, num_workers)

    @staticmethod
    def _make(path, n=801):
        r = np.random.RandomState(8)
        df = pd.DataFrame({'area': r.gamma(9, 10, n), 'rooms': r.randint(1, 8, n), 'age': r.randint(0, 90, n),
                           'km': r.exponential(6, n), 'floor': r.randint(0, 9, n), 'garden': r.randint(0, 2, n),
                           'noise': r.rand(n), 'school': r.rand(n)})
        df['price'] = (df.area * (3 + np.exp(-df.km / 4) * 4) * (1 - .004 * df.age) * (1.1 + .2 * df.garden)
                       * (1 + .1 * df.school) * r.normal(1, .06, n) / 300).round(4)
        df.to_csv(path, index=False)
