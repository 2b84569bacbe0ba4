import torch.nn as nn


class ConvLayer(nn.Module):
    def __init__(self, c_in, c_out, k, stride=1):
        super(ConvLayer, self).__init__()
        self.pad = nn.ReflectionPad2d(k // 2)
        self.conv = nn.Conv2d(c_in, c_out, k, stride)

    def forward(self, x):
        return self.conv(self.pad(x))


class Residual(nn.Module):
    def __init__(self, ch):
        super(Residual, self).__init__()
        self.body = nn.Sequential(ConvLayer(ch, ch, 3), nn.InstanceNorm2d(ch, affine=True), nn.ReLU(),
                                  ConvLayer(ch, ch, 3), nn.InstanceNorm2d(ch, affine=True))

    def forward(self, x):
        return x + self.body(x)


class TransformerNet(nn.Module):
    def __init__(self, ch=8):
        super(TransformerNet, self).__init__()
        self.net = nn.Sequential(
            ConvLayer(3, ch, 5), nn.InstanceNorm2d(ch, affine=True), nn.ReLU(),
            ConvLayer(ch, ch * 2, 3, stride=2), nn.InstanceNorm2d(ch * 2, affine=True), nn.ReLU(),
            Residual(ch * 2),
            nn.Upsample(scale_factor=2, mode='nearest'),
            ConvLayer(ch * 2, ch, 3), nn.InstanceNorm2d(ch, affine=True), nn.ReLU(),
            ConvLayer(ch, 3, 5))

    def forward(self, x):
        return self.net(x)
