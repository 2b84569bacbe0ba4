import os
import numpy as np
import pandas as pd
from torch.utils.data import Dataset
from sklearn.preprocessing import StandardScaler
import warnings

warnings.filterwarnings('ignore')


def write_toy_csv(path, n=1100):
    rng = np.random.RandomState(0)
    t = np.arange(n)
    day = np.sin(2 * np.pi * t / 24)
    week = np.sin(2 * np.pi * t / 168)
    df = pd.DataFrame({'date': pd.date_range('2016-07-01', periods=n, freq='h')})
    for k in range(3):
        df['V%d' % k] = (k + 1) * day + week * rng.rand() + 0.2 * rng.randn(n)
    df['OT'] = 2 * day + 3 * week + np.cumsum(0.05 * rng.randn(n))
    df.to_csv(path, index=False)


class Dataset_Custom(Dataset):
    def __init__(self, root_path, flag='train', size=None, data_path='load.csv', target='OT', scale=True):
        self.seq_len, self.label_len, self.pred_len = size
        assert flag in ['train', 'test', 'val']
        self.set_type = {'train': 0, 'val': 1, 'test': 2}[flag]
        self.target = target
        self.scale = scale
        self.root_path = root_path
        self.data_path = data_path
        self.__read_data__()

    def __read_data__(self):
        self.scaler = StandardScaler()
        path = os.path.join(self.root_path, self.data_path)
        if not os.path.exists(path):
            os.makedirs(self.root_path)
            write_toy_csv(path)
        df_raw = pd.read_csv(path)
        cols = [c for c in df_raw.columns if c not in (self.target, 'date')] + [self.target]
        n = len(df_raw)
        num_train, num_test = int(n * 0.7), int(n * 0.2)
        num_vali = n - num_train - num_test
        border1 = [0, num_train - self.seq_len, n - num_test - self.seq_len][self.set_type]
        border2 = [num_train, num_train + num_vali, n][self.set_type]

        data = df_raw[cols].values
        if self.scale:
            self.scaler.fit(data[:num_train])
            data = self.scaler.transform(data)
        stamp = pd.to_datetime(df_raw['date'])
        self.data_stamp = np.stack([stamp.dt.hour / 23. - 0.5, stamp.dt.dayofweek / 6. - 0.5], 1)[border1:border2]
        self.data_x = data[border1:border2]

    def __getitem__(self, index):
        s_end = index + self.seq_len
        r_begin = s_end - self.label_len
        r_end = s_end + self.pred_len
        return self.data_x[index:s_end], self.data_x[r_begin:r_end], self.data_stamp[index:s_end], self.data_stamp[r_begin:r_end]

    def __len__(self):
        return len(self.data_x) - self.seq_len - self.pred_len + 1

    def inverse_transform(self, data):
        return self.scaler.inverse_transform(data)
