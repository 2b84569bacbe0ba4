from __future__ import division

import numpy as np
import torch
import tqdm
from torch.utils.data import DataLoader

from datasets import ListDataset


def batch_statistics(outputs, targets, radius):
    """for each image: hit or not, confidence, class of every prediction above 0.1"""
    stats = []
    for k, out in enumerate(outputs):
        out = out[out[:, 3] > 0.1]
        out = out[out[:, 3].argsort(descending=True)]
        truth = targets[targets[:, 0] == k]
        tp = np.zeros(len(out))
        taken = []
        for i, (x, y, s, conf, cls) in enumerate(out.tolist()):
            d = ((truth[:, 2] - x) ** 2 + (truth[:, 3] - y) ** 2).sqrt()
            d[truth[:, 1] != cls] = 9
            for t in taken:
                d[t] = 9
            if len(d) and d.min() < radius:
                tp[i] = 1
                taken.append(int(d.argmin()))
        stats.append((tp, out[:, 3].numpy(), out[:, 4].numpy()))
    return stats


def ap_per_class(tp, conf, pred_cls, target_cls):
    order = np.argsort(-conf, kind='stable')
    tp, conf, pred_cls = tp[order], conf[order], pred_cls[order]
    ap = []
    for c in np.unique(target_cls):
        i = pred_cls == c
        n_gt = (target_cls == c).sum()
        if i.sum() == 0:
            ap.append(0)
            continue
        fpc, tpc = (1 - tp[i]).cumsum(), tp[i].cumsum()
        recall = np.concatenate(([0.], tpc / n_gt, [1.]))
        precision = np.concatenate(([0.], tpc / (tpc + fpc), [0.]))
        precision = np.maximum.accumulate(precision[::-1])[::-1]
        k = np.where(recall[1:] != recall[:-1])[0]
        ap.append(np.sum((recall[k + 1] - recall[k]) * precision[k + 1]))
    return np.array(ap)


def evaluate(model, batch_size, radius=0.08):
    model.eval()
    dataset = ListDataset(93, seed=2, augment=False)
    dataloader = DataLoader(dataset, batch_size=batch_size, shuffle=False, collate_fn=dataset.collate_fn)
    device = next(model.parameters()).device
    labels = []
    sample_metrics = []
    for imgs, targets in tqdm.tqdm(dataloader, desc="Detecting objects"):
        labels += targets[:, 1].tolist()
        with torch.no_grad():
            outputs = model(imgs.to(device)).cpu()
        sample_metrics += batch_statistics(outputs, targets, radius)
    tp, conf, cls = [np.concatenate(x, 0) for x in list(zip(*sample_metrics))]
    return ap_per_class(tp, conf, cls, np.array(labels))
