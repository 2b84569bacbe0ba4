import numpy as np
import torch
from PIL import Image


def load_style(size):
    yy, xx = np.mgrid[:size, :size]
    s = np.stack([np.sin(xx / 2.) + np.cos(yy / 3.), np.sin((xx + yy) / 2.), np.cos(xx / 4.)])
    s = (s - s.min()) / (s.max() - s.min()) * 255
    return normalize_batch(torch.from_numpy(s).float()[None])


def save_image(filename, data):
    img = data.clone().clamp(0, 255).numpy().transpose(1, 2, 0).astype("uint8")
    Image.fromarray(img).save(filename)


def gram_matrix(y):
    (b, ch, h, w) = y.size()
    f = y.view(b, ch, w * h)
    return f.bmm(f.transpose(1, 2)) / (ch * h * w)


def normalize_batch(batch):
    # imagenet numbers
    mean = batch.new_tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
    std = batch.new_tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
    return (batch.div(255.0) - mean) / std
