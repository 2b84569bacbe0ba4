import random

import torch
from torch.utils.data import DataLoader as _TorchLoader


class Data:
    def __init__(self, x, edge_index, y):
        self.x, self.edge_index, self.y = x, edge_index, y

    @property
    def num_nodes(self):
        return self.x.size(0)


class Batch:
    """many graphs as one: node indices shifted, batch[i] says whose node i is"""

    @classmethod
    def from_data_list(cls, graphs):
        b = cls()
        xs, es, owners, shift = [], [], [], 0
        for i, g in enumerate(graphs):
            xs.append(g.x)
            es.append(g.edge_index + shift)
            owners.append(torch.full((g.num_nodes,), i, dtype=torch.long))
            shift += g.num_nodes
        b.x = torch.cat(xs)
        b.edge_index = torch.cat(es, dim=1)
        b.batch = torch.cat(owners)
        b.y = torch.tensor([g.y for g in graphs])
        b.num_graphs = len(graphs)
        return b

    def to(self, device):
        for k, v in self.__dict__.items():
            if torch.is_tensor(v):
                setattr(self, k, v.to(device))
        return self


class DataLoader(_TorchLoader):
    def __init__(self, dataset, batch_size=1, shuffle=False, **kw):
        super().__init__(dataset, batch_size, shuffle, collate_fn=Batch.from_data_list, **kw)


class Molecules(torch.utils.data.Dataset):
    """random trees; class 1 has one extra edge that closes a triangle"""

    def __init__(self, n=420, seed=5, graphs=None):
        if graphs is not None:
            self.graphs = graphs
            return
        rnd = random.Random(seed)
        self.graphs = [self._one(rnd) for _ in range(n)]

    num_features = 5
    num_classes = 2

    def _one(self, rnd):
        n = rnd.randint(6, 14)
        y = rnd.randint(0, 1)
        edges = [(i, rnd.randrange(i)) for i in range(1, n)]
        if y:
            i = rnd.randrange(2, n)
            p = edges[i - 1][1]
            other = next((a if b == p else b for a, b in edges if p in (a, b) and i not in (a, b)), None)
            if other is None:
                y = 0
            else:
                edges.append((i, other))
        edges += [(b, a) for a, b in edges]
        e = torch.tensor(edges).t()
        deg = torch.bincount(e[0], minlength=n).clamp(max=4)
        return Data(torch.eye(5)[deg], e, y)

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, i):
        if isinstance(i, (slice, list)):
            picked = self.graphs[i] if isinstance(i, slice) else [self.graphs[j] for j in i]
            return Molecules(graphs=picked)
        return self.graphs[i]

    def shuffle(self):
        return self[torch.randperm(len(self)).tolist()]
