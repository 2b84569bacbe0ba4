import os

import numpy as np
import pandas as pd
import torch.utils.data as data


def write_ratings(path, n_users=60, n_items=120):
    """users like the items near their own taste"""
    rng = np.random.RandomState(9)
    taste_u, taste_i = rng.randn(n_users, 3), rng.randn(n_items, 3)
    rows = []
    for u in range(n_users):
        score = taste_u[u] @ taste_i.T + 0.4 * rng.randn(n_items)
        liked = np.argsort(-score)[:rng.randint(12, 20)]
        rng.shuffle(liked)
        rows += [(u, i, t) for t, i in enumerate(liked)]
    pd.DataFrame(rows).to_csv(path, sep='\t', header=False, index=False)


def load_all(path='data/ratings.tsv', test_num=99):
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_ratings(path)
    df = pd.read_csv(path, sep='\t', header=None, names=['user', 'item', 'time'],
                     dtype={0: np.int32, 1: np.int32, 2: np.int32})
    user_num, item_num = df['user'].max() + 1, df['item'].max() + 1

    # leave the last one out
    last = df.groupby('user')['time'].idxmax()
    train_data = df.drop(index=last)[['user', 'item']].values.tolist()
    mat = set(map(tuple, df[['user', 'item']].values.tolist()))
    test_data = []
    rng = np.random.RandomState(1)
    for u, i in df.loc[last, ['user', 'item']].values.tolist():
        test_data.append([u, i])
        unseen = [j for j in range(item_num) if (u, j) not in mat]
        test_data += [[u, int(j)] for j in rng.choice(unseen, test_num)]
    return train_data, test_data, user_num, item_num, set(map(tuple, train_data))


class NCFData(data.Dataset):
    def __init__(self, features, num_item, train_mat=None, num_ng=0, is_training=None):
        super(NCFData, self).__init__()
        # labels are only useful when training
        self.features_ps = features
        self.num_item = num_item
        self.train_mat = train_mat
        self.num_ng = num_ng
        self.is_training = is_training
        self.labels = [0 for _ in range(len(features))]

    def ng_sample(self):
        assert self.is_training, 'no need to sampling when testing'
        self.features_ng = []
        for x in self.features_ps:
            u = x[0]
            for t in range(self.num_ng):
                j = np.random.randint(self.num_item)
                while (u, j) in self.train_mat:
                    j = np.random.randint(self.num_item)
                self.features_ng.append([u, j])
        self.features_fill = self.features_ps + self.features_ng
        self.labels_fill = [1] * len(self.features_ps) + [0] * len(self.features_ng)

    def __len__(self):
        return (self.num_ng + 1) * len(self.labels)

    def __getitem__(self, idx):
        features = self.features_fill if self.is_training else self.features_ps
        labels = self.labels_fill if self.is_training else self.labels
        return features[idx][0], features[idx][1], labels[idx]
