import math

import numpy as np
from PIL import Image


def save_image(tensor, fp, nrow=8):
    n, c, h, w = tensor.size()
    rows = int(math.ceil(n / nrow))
    canvas = np.zeros((rows * h, nrow * w), dtype=np.uint8)
    for k in range(n):
        r, q = divmod(k, nrow)
        canvas[r * h:(r + 1) * h, q * w:(q + 1) * w] = (tensor[k, 0].numpy() * 255).astype(np.uint8)
    Image.fromarray(canvas).save(fp)
