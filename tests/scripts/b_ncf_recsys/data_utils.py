import os

import numpy as np
import pandas as pd
import torch.utils.data as data

import config


def make_ratings(users=110, items=160, per_user=14):
    r = np.random.RandomState(2)
    u, v = r.randn(users, 4), r.randn(items, 4)
    score = u @ v.T + 0.7 * r.randn(users, items) + 0.5 * r.randn(items)
    rows = []
    for i in range(users):
        liked = np.argsort(-score[i])[:per_user]
        for t, j in enumerate(r.permutation(liked)):
            rows.append((i, j, 5, 1000 + t))
    return pd.DataFrame(rows, columns=['user', 'item', 'rating', 'timestamp'])


def load_all(test_num):
    if not os.path.exists(config.main_path):
        os.mkdir(config.main_path)
    if not os.path.exists(config.ratings):
        make_ratings().to_csv(config.ratings, index=False)
    df = pd.read_csv(config.ratings).sort_values(['user', 'timestamp'])
    # the last item of every user is for the test
    last = df.groupby('user').tail(1)
    train = df.drop(last.index)
    user_num = df['user'].max() + 1
    item_num = df['item'].max() + 1
    seen = set(zip(df.user, df.item))
    train_mat = set(zip(train.user, train.item))

    rng = np.random.RandomState(9)
    test = []
    for u, i in zip(last.user, last.item):
        test.append([u, i])
        k = 0
        while k < test_num:
            j = rng.randint(item_num)
            if (u, j) not in seen:
                test.append([u, j])
                k += 1
    return train[['user', 'item']].values.tolist(), test, user_num, item_num, train_mat


class PairData(data.Dataset):
    def __init__(self, features, num_item, train_mat=None, num_ng=0, is_training=None):
        super(PairData, self).__init__()
        self.features_ps = features
        self.num_item = num_item
        self.train_mat = train_mat
        self.num_ng = num_ng
        self.is_training = is_training
        self.labels = [0 for _ in range(len(features))]

    def ng_sample(self):
        assert self.is_training, 'no need to sample when testing'
        self.features_ng = []
        for u, _ in self.features_ps:
            for _ in range(self.num_ng):
                j = np.random.randint(self.num_item)
                while (u, j) in self.train_mat:
                    j = np.random.randint(self.num_item)
                self.features_ng.append([u, j])
        self.features_fill = self.features_ps + self.features_ng
        self.labels_fill = [1] * len(self.features_ps) + [0] * len(self.features_ng)

    def __len__(self):
        # known before the negatives are drawn
        return (self.num_ng + 1) * len(self.labels)

    def __getitem__(self, idx):
        features = self.features_fill if self.is_training else self.features_ps
        labels = self.labels_fill if self.is_training else self.labels
        return features[idx][0], features[idx][1], labels[idx]
