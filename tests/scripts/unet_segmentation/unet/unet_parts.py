"""Pieces of the U"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class DoubleConv(nn.Module):
    """(conv, norm, relu) twice"""

    def __init__(self, n_in, n_out, n_mid=None):
        super().__init__()
        n_mid = n_mid or n_out
        self.body = nn.Sequential(
            nn.Conv2d(n_in, n_mid, 3, padding=1, bias=False), nn.BatchNorm2d(n_mid), nn.ReLU(inplace=True),
            nn.Conv2d(n_mid, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.body(x)


class Down(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(n_in, n_out))

    def forward(self, x):
        return self.conv(x)


class Up(nn.Module):
    def __init__(self, n_in, n_out, bilinear=True):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True)
            self.conv = DoubleConv(n_in + n_out, n_out)
        else:
            self.up = nn.ConvTranspose2d(n_in, n_out, 2, stride=2)
            self.conv = DoubleConv(2 * n_out, n_out)

    def forward(self, low, skip):
        low = self.up(low)
        dy, dx = skip.size(2) - low.size(2), skip.size(3) - low.size(3)
        low = F.pad(low, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([skip, low], dim=1))
