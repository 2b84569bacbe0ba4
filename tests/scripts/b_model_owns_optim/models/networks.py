import torch
import torch.nn as nn
from torch.nn import init
from torch.optim import lr_scheduler


def get_scheduler(optimizer, opt):
    def linear(epoch):
        return 1.0 - max(0, epoch + opt.epoch_count - opt.n_epochs) / float(opt.n_epochs_decay + 1)
    return lr_scheduler.LambdaLR(optimizer, lr_lambda=linear)


def init_net(net, gpu_ids=[]):
    if len(gpu_ids) > 0:
        net.to(gpu_ids[0])
        net = torch.nn.DataParallel(net, gpu_ids)

    def init_func(m):
        if hasattr(m, 'weight') and isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
            init.normal_(m.weight.data, 0.0, 0.05)
        elif isinstance(m, nn.BatchNorm2d):
            init.normal_(m.weight.data, 1.0, 0.02)
            init.constant_(m.bias.data, 0.0)
    net.apply(init_func)
    return net


def define_G(ngf, gpu_ids=[]):
    return init_net(SmallUnet(ngf), gpu_ids)


def define_D(ndf, gpu_ids=[]):
    return init_net(PatchNet(ndf), gpu_ids)


class SmallUnet(nn.Module):
    def __init__(self, ngf):
        super(SmallUnet, self).__init__()
        self.d1 = nn.Conv2d(1, ngf, 4, 2, 1)
        self.d2 = nn.Sequential(nn.LeakyReLU(0.2), nn.Conv2d(ngf, ngf * 2, 4, 2, 1), nn.BatchNorm2d(ngf * 2))
        self.u2 = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1), nn.BatchNorm2d(ngf), nn.Dropout(0.5))
        self.u1 = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(ngf * 2, 1, 4, 2, 1), nn.Tanh())

    def forward(self, x):
        h1 = self.d1(x)
        h2 = self.d2(h1)
        return self.u1(torch.cat([h1, self.u2(h2)], 1))


class PatchNet(nn.Module):
    def __init__(self, ndf):
        super(PatchNet, self).__init__()
        self.model = nn.Sequential(
            nn.Conv2d(2, ndf, 4, 2, 1), nn.LeakyReLU(0.2, True),
            nn.Conv2d(ndf, ndf * 2, 3, 1, 1, bias=False), nn.BatchNorm2d(ndf * 2), nn.LeakyReLU(0.2, True),
            nn.Conv2d(ndf * 2, 1, 3, 1, 1))

    def forward(self, input):
        return self.model(input)


class GANLoss(nn.Module):
    def __init__(self):
        super(GANLoss, self).__init__()
        self.register_buffer('real_label', torch.tensor(1.0))
        self.register_buffer('fake_label', torch.tensor(0.0))
        self.loss = nn.MSELoss()

    def __call__(self, prediction, target_is_real):
        target = self.real_label if target_is_real else self.fake_label
        return self.loss(prediction, target.expand_as(prediction))
