import torch
import torch.nn as nn

import utils


class Cell(nn.Module):
    def __init__(self, c):
        super(Cell, self).__init__()
        self.a = nn.Sequential(nn.ReLU(), nn.Conv2d(c, c, 3, padding=1, groups=c, bias=False), nn.Conv2d(c, c, 1, bias=False), nn.BatchNorm2d(c))
        self.b = nn.Sequential(nn.ReLU(), nn.Conv2d(c, c, 3, padding=2, dilation=2, groups=c, bias=False), nn.Conv2d(c, c, 1, bias=False), nn.BatchNorm2d(c))

    def forward(self, x, drop_prob):
        h1, h2 = self.a(x), self.b(x)
        if self.training and drop_prob > 0.:
            h1, h2 = utils.drop_path(h1, drop_prob), utils.drop_path(h2, drop_prob)
        return x + h1 + h2


class AuxHead(nn.Module):
    def __init__(self, c, num_classes):
        super(AuxHead, self).__init__()
        self.features = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Conv2d(c, 24, 2), nn.BatchNorm2d(24), nn.ReLU())
        self.classifier = nn.Linear(24, num_classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class Network(nn.Module):
    def __init__(self, C, num_classes, layers, auxiliary):
        super(Network, self).__init__()
        self._layers = layers
        self._auxiliary = auxiliary
        self.drop_path_prob = 0.
        self.stem = nn.Sequential(nn.Conv2d(1, C, 3, padding=1, bias=False), nn.BatchNorm2d(C))
        self.cells = nn.ModuleList([Cell(C) for _ in range(layers)])
        self.auxiliary_head = AuxHead(C, num_classes) if auxiliary else None
        self.classifier = nn.Linear(C * 4, num_classes)

    def forward(self, input):
        logits_aux = None
        s = self.stem(input)
        for i, cell in enumerate(self.cells):
            s = cell(s, self.drop_path_prob)
            if i == 2 * self._layers // 3 - 1 and self._auxiliary and self.training:
                logits_aux = self.auxiliary_head(s)
        out = nn.functional.adaptive_avg_pool2d(s, 2)
        return self.classifier(out.flatten(1)), logits_aux
