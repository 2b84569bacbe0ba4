from torch import nn

from .registry import register


@register('convnet')
class ConvNet(nn.Module):
    def __init__(self, cfg):
        super(ConvNet, self).__init__()
        w = cfg.MODEL.WIDTH
        self.base = nn.Sequential(nn.Conv2d(1, w, 3, padding=1), nn.BatchNorm2d(w), nn.ReLU(),
                                  nn.Conv2d(w, w * 2, 3, 2, 1), nn.BatchNorm2d(w * 2), nn.ReLU())
        self.gap = nn.AdaptiveAvgPool2d(2)
        self.classifier = nn.Linear(w * 2 * 4, cfg.MODEL.NUM_CLASSES)

    def forward(self, x):
        return self.classifier(self.gap(self.base(x)).flatten(1))
