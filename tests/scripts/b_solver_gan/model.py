import torch
import torch.nn as nn


def deconv(c_in, c_out, k=4, stride=2, pad=1, bn=True):
    layers = [nn.ConvTranspose2d(c_in, c_out, k, stride, pad, bias=not bn)]
    if bn:
        layers.append(nn.BatchNorm2d(c_out))
    return nn.Sequential(*layers)


class Generator(nn.Module):
    def __init__(self, z_dim=16, n_attr=3, dim=16):
        super(Generator, self).__init__()
        self.z_dim = z_dim
        self.fc = deconv(z_dim + n_attr, dim * 2, 4, 1, 0)
        self.up1 = deconv(dim * 2, dim)
        self.up2 = deconv(dim, 3, bn=False)

    def forward(self, z, attr):
        h = torch.cat([z, attr], 1).view(z.size(0), -1, 1, 1)
        h = torch.relu(self.fc(h))
        h = torch.relu(self.up1(h))
        return torch.tanh(self.up2(h))


class Discriminator(nn.Module):
    # no BN here, the penalty needs it that way
    def __init__(self, n_attr=3, dim=16):
        super(Discriminator, self).__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, dim, 4, 2, 1), nn.LeakyReLU(0.05),
            nn.Conv2d(dim, dim * 2, 4, 2, 1), nn.LeakyReLU(0.05))
        self.realness = nn.Conv2d(dim * 2, 1, 4)
        self.attr = nn.Conv2d(dim * 2, n_attr, 4)

    def forward(self, x):
        h = self.body(x)
        return self.realness(h).view(-1), self.attr(h).view(x.size(0), -1)
