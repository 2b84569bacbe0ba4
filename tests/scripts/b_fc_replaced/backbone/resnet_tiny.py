import os

import torch
import torch.nn as nn
import torch.nn.functional as F


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super(BasicBlock, self).__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.down = None
        if stride != 1 or cin != cout:
            self.down = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.down is None else self.down(x)))


class ResNetTiny(nn.Module):
    def __init__(self, num_classes=5):
        super(ResNetTiny, self).__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(12)
        self.layer1 = BasicBlock(12, 12)
        self.layer2 = BasicBlock(12, 24, 2)
        self.fc = nn.Linear(24, num_classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer2(self.layer1(x))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def pretrained_weights(path, loader):
    """没有预训练权重就现做一个: digits 0-4"""
    if not os.path.exists(path):
        print('预训练...')
        net = ResNetTiny(num_classes=5)
        opt = torch.optim.Adam(net.parameters(), lr=5e-3)
        for _ in range(2):
            for x, y in loader:
                loss = F.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
        torch.save(net.state_dict(), path)
    return path
