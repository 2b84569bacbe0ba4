import numpy as np
import torch
from torch.utils.data import Dataset


class ListDataset(Dataset):
    """1-3 bright objects (cross or block) on 32x32 noise"""

    def __init__(self, n, seed, augment=True):
        r = np.random.RandomState(seed)
        self.augment = augment
        self.items = []
        for _ in range(n):
            img = r.rand(32, 32) * 0.4
            cells = r.choice(16, r.randint(1, 4), replace=False)
            boxes = []
            for c in cells:
                cx, cy = (c % 4) * 8 + r.randint(2, 6), (c // 4) * 8 + r.randint(2, 6)
                k, s = r.randint(0, 2), r.randint(2, 4)
                y0, x0 = max(cy - s, 0), max(cx - s, 0)
                if k == 0:
                    img[y0:cy + s + 1, x0:cx + s + 1] += 0.6
                else:
                    img[y0:cy + s + 1, cx] += 0.9
                    img[cy, x0:cx + s + 1] += 0.9
                boxes.append([0, k, (cx + .5) / 32, (cy + .5) / 32, (2 * s + 1) / 32])
            self.items.append((img.astype(np.float32), np.array(boxes, dtype=np.float32)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        img, boxes = self.items[index]
        boxes = boxes.copy()
        if self.augment and np.random.random() < 0.5:
            img = img[:, ::-1].copy()
            boxes[:, 2] = 1 - boxes[:, 2]
        return torch.from_numpy(img)[None], torch.from_numpy(boxes)

    def collate_fn(self, batch):
        imgs, targets = list(zip(*batch))
        for i, boxes in enumerate(targets):
            boxes[:, 0] = i
        return torch.stack(imgs), torch.cat(targets, 0)
