import math
import os

import numpy as np
import torch
from PIL import Image


def make_grid(tensor, nrow=8, padding=1, normalize=False):
    t = tensor.detach().cpu().float()
    if normalize:
        t = (t - t.min()) / (t.max() - t.min() + 1e-8)
    n, c, h, w = t.shape
    rows = int(math.ceil(n / float(nrow)))
    grid = torch.zeros(c, rows * (h + padding), nrow * (w + padding))
    for k in range(n):
        r, q = divmod(k, nrow)
        grid[:, r * (h + padding):r * (h + padding) + h, q * (w + padding):q * (w + padding) + w] = t[k]
    return grid


def save_image(tensor, filename, nrow=8, normalize=False):
    arr = make_grid(tensor, nrow=nrow, normalize=normalize).clamp(0, 1).mul(255).byte().numpy()
    img = Image.fromarray(arr.transpose(1, 2, 0)) if arr.shape[0] == 3 else Image.fromarray(arr[0])
    img.save(filename)
