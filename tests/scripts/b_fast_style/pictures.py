import torch
from sklearn.datasets import load_sample_images
from torch.utils.data import Dataset


class PatchFolder(Dataset):
    """square tiles of the two sample photographs, 0-255"""

    def __init__(self, name, size):
        self.tiles = []
        for im in load_sample_images().images:
            im = im[::3, ::3]
            for i in range(0, im.shape[0] - size, size):
                for j in range(0, im.shape[1] - size, size):
                    self.tiles.append(torch.from_numpy(im[i:i + size, j:j + size].copy()).permute(2, 0, 1).float())

    def __getitem__(self, i):
        return self.tiles[i]

    def __len__(self):
        return len(self.tiles)
