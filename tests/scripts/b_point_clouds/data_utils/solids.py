import numpy as np
from torch.utils.data import Dataset

NAMES = ['sphere', 'cube', 'cone', 'torus']


def sample(kind, n, r):
    u, v = r.rand(n) * 2 * np.pi, r.rand(n)
    if kind == 0:
        z = 2 * v - 1
        p = np.stack([np.sqrt(1 - z ** 2) * np.cos(u), np.sqrt(1 - z ** 2) * np.sin(u), z], 1)
    elif kind == 1:
        p = r.uniform(-1, 1, (n, 3))
        p[np.arange(n), r.randint(0, 3, n)] = r.choice([-1, 1], n)
    elif kind == 2:
        h = np.sqrt(v)
        p = np.stack([h * np.cos(u), h * np.sin(u), 1 - 2 * h], 1)
    else:
        w = r.rand(n) * 2 * np.pi
        p = np.stack([(1 + .35 * np.cos(w)) * np.cos(u), (1 + .35 * np.cos(w)) * np.sin(u), .35 * np.sin(w)], 1)
    a = r.rand() * 2 * np.pi
    rot = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
    p = (p * r.uniform(.7, 1.2, 3)) @ rot + r.randn(n, 3) * 0.08
    p -= p.mean(0)
    return (p / np.max(np.sqrt((p ** 2).sum(1)))).astype(np.float32)


class SolidsDataset(Dataset):
    def __init__(self, num, num_point, split):
        r = np.random.RandomState({'train': 0, 'test': 1}[split])
        self.label = r.randint(0, 4, num)
        self.points = np.stack([sample(k, num_point, r) for k in self.label])
        print('The size of %s data is %d' % (split, num))

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.points[i], self.label[i]
