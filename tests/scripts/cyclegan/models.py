import torch.nn as nn


def conv(i, o, k=3, s=1, norm=True, act=True):
    layers = [nn.ReflectionPad2d(k // 2), nn.Conv2d(i, o, k, s)]
    if norm:
        layers.append(nn.InstanceNorm2d(o))
    if act:
        layers.append(nn.ReLU(inplace=True))
    return layers


class ResBlock(nn.Module):
    def __init__(self, n):
        super(ResBlock, self).__init__()
        self.body = nn.Sequential(*(conv(n, n) + conv(n, n, act=False)))

    def forward(self, x):
        return x + self.body(x)


class Generator(nn.Module):
    def __init__(self, i=3, o=3, ngf=8, blocks=2):
        super(Generator, self).__init__()
        layers = conv(i, ngf) + conv(ngf, 2 * ngf, s=2)
        layers += [ResBlock(2 * ngf) for _ in range(blocks)]
        layers += [nn.Upsample(scale_factor=2)] + conv(2 * ngf, ngf)
        layers += conv(ngf, o, norm=False, act=False) + [nn.Tanh()]
        self.model = nn.Sequential(*layers)

    def forward(self, x):
        return self.model(x)


class PatchD(nn.Module):
    def __init__(self, i=3, ndf=8):
        super(PatchD, self).__init__()
        self.model = nn.Sequential(
            nn.Conv2d(i, ndf, 4, 2, 1), nn.LeakyReLU(0.2, True),
            nn.Conv2d(ndf, 2 * ndf, 4, 2, 1), nn.InstanceNorm2d(2 * ndf), nn.LeakyReLU(0.2, True),
            nn.Conv2d(2 * ndf, 1, 3, 1, 1))

    def forward(self, x):
        return self.model(x).mean(dim=(1, 2, 3))
