import numpy as np
import torch


class ShapesDataset(torch.utils.data.Dataset):
    """one to three bright rectangles or discs; some pictures are larger than others in content, all 48x48"""

    def __init__(self, n, seed, transforms=None):
        self.n, self.seed, self.transforms = n, seed, transforms

    def __len__(self):
        return self.n

    def __getitem__(self, idx):
        rng = np.random.RandomState(self.seed * 10000 + idx)
        img = rng.uniform(0, 0.35, (48, 48, 3)).astype(np.float32)
        y, x = np.mgrid[0:48, 0:48]
        boxes, labels = [], []
        for _ in range(rng.randint(1, 4)):
            r = rng.randint(4, 9)
            cy, cx = rng.randint(r, 48 - r, 2)
            label = rng.randint(1, 3)
            inside = (abs(y - cy) < r) & (abs(x - cx) < r) if label == 1 else (y - cy) ** 2 + (x - cx) ** 2 < r * r
            img[inside, label] = 0.9
            boxes.append([cx - r, cy - r, cx + r, cy + r])
            labels.append(label)
        target = {
            "boxes": torch.as_tensor(boxes, dtype=torch.float32),
            "labels": torch.as_tensor(labels, dtype=torch.int64),
            "image_id": idx,
        }
        img = torch.from_numpy(img).permute(2, 0, 1)
        if self.transforms is not None:
            img, target = self.transforms(img, target)
        return img, target


def hflip(img, target):
    if torch.rand(1) < 0.5:
        img = img.flip(-1)
        w = img.shape[-1]
        target["boxes"][:, [0, 2]] = w - target["boxes"][:, [2, 0]]
    return img, target
