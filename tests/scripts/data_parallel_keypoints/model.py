import torch
import torch.nn as nn
import torch.nn.functional as F


class HourNet(nn.Module):
    def __init__(self, heads=3, width=12):
        super(HourNet, self).__init__()
        self.heads = heads
        self.stride = 2
        self.conv1 = nn.Conv2d(1, width, 5, 2, 2)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.bn2 = nn.BatchNorm2d(2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.out = nn.Conv2d(width, heads, 1)
        self.out.bias.data.fill_(-2.19)

    def forward(self, x):
        a = F.relu(self.bn1(self.conv1(x)))
        b = F.relu(self.bn2(self.conv2(a)))
        return self.out(a + self.up(b))

    def decode(self, hm):
        n, c, h, w = hm.shape
        k = hm.view(n, c, -1).argmax(2)
        return torch.stack([k % w, k // w], dim=2).float() * self.stride
