import math

from torch import nn


class SRNet(nn.Module):
    def __init__(self, scale_factor, ch=16):
        super(SRNet, self).__init__()
        self.first_part = nn.Sequential(
            nn.Conv2d(1, ch, kernel_size=5, padding=2), nn.PReLU(ch),
            nn.Conv2d(ch, ch // 2, kernel_size=3, padding=1), nn.PReLU(ch // 2))
        self.last_part = nn.Sequential(
            nn.Conv2d(ch // 2, scale_factor ** 2, kernel_size=3, padding=1),
            nn.PixelShuffle(scale_factor))
        self.reset()

    def reset(self):
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                fan = m.out_channels * m.weight.data[0][0].numel()
                nn.init.normal_(m.weight.data, mean=0.0, std=math.sqrt(2 / fan))
                nn.init.zeros_(m.bias.data)

    def forward(self, x):
        return self.last_part(self.first_part(x))
