import numpy as np
import scipy.sparse as sp
import torch


def load_data(n=400, classes=4, seed=0):
    """papers cite mostly papers of their own field, and share words with them"""
    rng = np.random.RandomState(seed)
    labels = rng.randint(0, classes, n)
    words = rng.rand(n, 60) < 0.05
    words[np.arange(n), labels * 3 + rng.randint(0, 3, n)] |= rng.rand(n) < 0.5
    p = np.where(labels[:, None] == labels[None, :], 0.02, 0.002)
    adj = sp.coo_matrix(np.triu(rng.rand(n, n) < p, 1).astype(np.float32))
    adj = adj + adj.T
    features = normalize(sp.csr_matrix(words, dtype=np.float32))
    adj = normalize(adj + sp.eye(adj.shape[0]))

    features = torch.FloatTensor(np.array(features.todense()))
    labels = torch.LongTensor(labels)
    adj = sparse_mx_to_torch_sparse_tensor(adj)
    return adj, features, labels, torch.arange(60), torch.arange(100, 200), torch.arange(200, n)


def normalize(mx):
    """rows that sum to one"""
    rowsum = np.array(mx.sum(1), dtype=np.float64)
    with np.errstate(divide='ignore'):
        r_inv = np.power(rowsum, -1).flatten()
    r_inv[np.isinf(r_inv)] = 0.
    return sp.diags(r_inv).dot(mx)


def accuracy(output, labels):
    preds = output.max(1)[1].type_as(labels)
    return preds.eq(labels).double().sum() / len(labels)


def sparse_mx_to_torch_sparse_tensor(mx):
    mx = mx.tocoo().astype(np.float32)
    indices = torch.from_numpy(np.vstack((mx.row, mx.col)).astype(np.int64))
    return torch.sparse_coo_tensor(indices, torch.from_numpy(mx.data), torch.Size(mx.shape))
