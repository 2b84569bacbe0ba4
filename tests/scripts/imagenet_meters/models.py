import torch.nn as nn

__all__ = ['resnet_mini', 'plain_mini']


def conv3x3(i, o, stride=1):
    return nn.Conv2d(i, o, kernel_size=3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, i, o, stride=1):
        super(BasicBlock, self).__init__()
        self.conv1 = conv3x3(i, o, stride)
        self.bn1 = nn.BatchNorm2d(o)
        self.conv2 = conv3x3(o, o)
        self.bn2 = nn.BatchNorm2d(o)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or i != o:
            self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(x)) + identity)


class ResNet(nn.Module):
    def __init__(self, widths=(8, 16, 24), num_classes=6):
        super(ResNet, self).__init__()
        self.features = nn.Sequential(conv3x3(3, widths[0], 2), nn.BatchNorm2d(widths[0]), nn.ReLU(inplace=True),
                                      BasicBlock(widths[0], widths[0]),
                                      BasicBlock(widths[0], widths[1], 2),
                                      BasicBlock(widths[1], widths[2], 2))
        self.fc = nn.Linear(widths[-1], num_classes)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


def resnet_mini(**kwargs):
    return ResNet(**kwargs)


def plain_mini(num_classes=6):
    return nn.Sequential(conv3x3(3, 8, 2), nn.ReLU(), conv3x3(8, 16, 2), nn.ReLU(), nn.Flatten(), nn.Linear(1024, num_classes))
