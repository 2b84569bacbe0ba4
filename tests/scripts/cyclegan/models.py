import torch.nn as nn
import torch.nn.functional as F


class ResidualBlock(nn.Module):
    def __init__(self, in_features):
        super(ResidualBlock, self).__init__()
        self.conv_block = nn.Sequential(nn.ReflectionPad2d(1),
                                        nn.Conv2d(in_features, in_features, 3),
                                        nn.InstanceNorm2d(in_features),
                                        nn.ReLU(inplace=True),
                                        nn.ReflectionPad2d(1),
                                        nn.Conv2d(in_features, in_features, 3),
                                        nn.InstanceNorm2d(in_features))

    def forward(self, x):
        return x + self.conv_block(x)


class Generator(nn.Module):
    def __init__(self, input_nc, output_nc, n_residual_blocks=2, ngf=8):
        super(Generator, self).__init__()
        model = [nn.ReflectionPad2d(1), nn.Conv2d(input_nc, ngf, 3), nn.InstanceNorm2d(ngf), nn.ReLU(inplace=True)]
        model += [nn.Conv2d(ngf, 2 * ngf, 3, stride=2, padding=1), nn.InstanceNorm2d(2 * ngf), nn.ReLU(inplace=True)]
        for _ in range(n_residual_blocks):
            model += [ResidualBlock(2 * ngf)]
        model += [nn.ConvTranspose2d(2 * ngf, ngf, 3, stride=2, padding=1, output_padding=1),
                  nn.InstanceNorm2d(ngf), nn.ReLU(inplace=True)]
        model += [nn.ReflectionPad2d(1), nn.Conv2d(ngf, output_nc, 3), nn.Tanh()]
        self.model = nn.Sequential(*model)

    def forward(self, x):
        return self.model(x)


class Discriminator(nn.Module):
    def __init__(self, input_nc, ndf=8):
        super(Discriminator, self).__init__()
        self.model = nn.Sequential(nn.Conv2d(input_nc, ndf, 4, stride=2, padding=1),
                                   nn.LeakyReLU(0.2, inplace=True),
                                   nn.Conv2d(ndf, 2 * ndf, 4, stride=2, padding=1),
                                   nn.InstanceNorm2d(2 * ndf),
                                   nn.LeakyReLU(0.2, inplace=True),
                                   nn.Conv2d(2 * ndf, 1, 3, padding=1))

    def forward(self, x):
        x = self.model(x)
        # Average pooling and flatten
        return F.avg_pool2d(x, x.size()[2:]).view(x.size()[0])
