import numpy as np
import torch


def metrics(model, test_loader, top_k):
    """a batch is one user, item[0] the one that should be found"""
    hits, gains = [], []
    for user, item, _ in test_loader:
        if torch.cuda.is_available():
            user, item = user.cuda(), item.cuda()
        with torch.no_grad():
            score = model(user, item)
        top = item[score.topk(top_k)[1]].tolist()
        true = item[0].item()
        if true in top:
            hits.append(1)
            gains.append(1 / np.log2(top.index(true) + 2))
        else:
            hits.append(0)
            gains.append(0)
    return np.mean(hits), np.mean(gains)
