import torch.nn as nn
import torch.nn.functional as F

__all__ = ['NarrowNet', 'narrow8', 'narrow12']


class NarrowNet(nn.Module):
    def __init__(self, width, num_classes=10):
        super(NarrowNet, self).__init__()
        self.conv1 = nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(2 * width)
        self.conv3 = nn.Conv2d(2 * width, 2 * width, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(2 * width)
        self.linear = nn.Linear(2 * width, num_classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = F.relu(self.bn3(self.conv3(x)) + x)
        return self.linear(F.avg_pool2d(x, 8).view(x.size(0), -1))


def narrow8():
    return NarrowNet(8)


def narrow12():
    return NarrowNet(12)
