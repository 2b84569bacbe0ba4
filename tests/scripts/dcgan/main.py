from __future__ import print_function
import argparse
import os
import random
import torch
import torch.nn as nn
import torch.nn.parallel
import torch.backends.cudnn as cudnn
import torch.optim as optim
import torch.utils.data
import dset
import transforms
import vutils


parser = argparse.ArgumentParser()
parser.add_argument('--dataset', required=True, help='cifar10 | noise')
parser.add_argument('--dataroot', required=False)
parser.add_argument('--workers', type=int, default=0)
parser.add_argument('--batchSize', type=int, default=64)
parser.add_argument('--imageSize', type=int, default=32)
parser.add_argument('--nz', type=int, default=100, help='length of z')
parser.add_argument('--ngf', type=int, default=64)
parser.add_argument('--ndf', type=int, default=64)
parser.add_argument('--niter', type=int, default=25, help='epochs')
parser.add_argument('--lr', type=float, default=0.0002)
parser.add_argument('--beta1', type=float, default=0.5)
parser.add_argument('--cuda', action='store_true', default=False)
parser.add_argument('--ngpu', type=int, default=1)
parser.add_argument('--netG', default='', help="go on with this netG")
parser.add_argument('--netD', default='', help="go on with this netD")
parser.add_argument('--outf', default='out')
parser.add_argument('--manualSeed', type=int)

opt = parser.parse_args()
print(opt)

try:
    os.makedirs(opt.outf)
except OSError:
    pass

if opt.manualSeed is None:
    opt.manualSeed = random.randint(1, 10000)
print("seed", opt.manualSeed)
random.seed(opt.manualSeed)
torch.manual_seed(opt.manualSeed)
cudnn.benchmark = True

if opt.dataset == 'cifar10':
    dataset = dset.CIFAR10(root=opt.dataroot, download=True,
                           transform=transforms.Compose([
                               transforms.Resize(opt.imageSize),
                               transforms.ToTensor(),
                               transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
                           ]))
elif opt.dataset == 'noise':
    dataset = torch.utils.data.TensorDataset(torch.randn(320, 3, opt.imageSize, opt.imageSize), torch.zeros(320))
assert dataset
loader = torch.utils.data.DataLoader(dataset, batch_size=opt.batchSize, shuffle=True, num_workers=int(opt.workers))

device = torch.device("cuda:0" if opt.cuda else "cpu")
ngpu = int(opt.ngpu)
nz, ngf, ndf = int(opt.nz), int(opt.ngf), int(opt.ndf)
nc = 3


def weights_init(m):
    name = m.__class__.__name__
    if 'Conv' in name:
        m.weight.data.normal_(0.0, 0.02)
    elif 'BatchNorm' in name:
        m.weight.data.normal_(1.0, 0.02)
        m.bias.data.fill_(0)


class _Net(nn.Module):
    """spread over several cards if there are"""
    def __init__(self, ngpu, *layers):
        super(_Net, self).__init__()
        self.ngpu = ngpu
        self.main = nn.Sequential(*layers)

    def forward(self, x):
        if x.is_cuda and self.ngpu > 1:
            return nn.parallel.data_parallel(self.main, x, range(self.ngpu))
        return self.main(x)


def up(i, o, stride=2, pad=1):
    return [nn.ConvTranspose2d(i, o, 4, stride, pad, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]


def down(i, o):
    return [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, inplace=True)]


class NetG(_Net):
    def __init__(self, ngpu):
        super(NetG, self).__init__(ngpu, *(
            up(nz, ngf * 4, 1, 0) + up(ngf * 4, ngf * 2) + up(ngf * 2, ngf)
            + [nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False), nn.Tanh()]))


class NetD(_Net):
    def __init__(self, ngpu):
        super(NetD, self).__init__(ngpu, *(
            [nn.Conv2d(nc, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
            + down(ndf, ndf * 2) + down(ndf * 2, ndf * 4)
            + [nn.Conv2d(ndf * 4, 1, 4, 1, 0, bias=False), nn.Sigmoid()]))

    def forward(self, x):
        return super(NetD, self).forward(x).view(-1)


netG = NetG(ngpu).to(device)
netG.apply(weights_init)
if opt.netG:
    netG.load_state_dict(torch.load(opt.netG))

netD = NetD(ngpu).to(device)
netD.apply(weights_init)
if opt.netD:
    netD.load_state_dict(torch.load(opt.netD))
print(netG, netD, sep='\n')

criterion = nn.BCELoss()
fixed_noise = torch.randn(opt.batchSize, nz, 1, 1, device=device)
REAL, FAKE = 1, 0

optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))

for epoch in range(opt.niter):
    for i, data in enumerate(loader, 0):
        # D first: real pictures, then generated ones, a backward for each
        netD.zero_grad()
        real = data[0].to(device)
        n = real.size(0)
        label = torch.full((n,), REAL, dtype=real.dtype, device=device)
        out = netD(real)
        errD_real = criterion(out, label)
        errD_real.backward()
        p_real = out.mean().item()

        z = torch.randn(n, nz, 1, 1, device=device)
        fake = netG(z)
        label.fill_(FAKE)
        out = netD(fake.detach())
        errD_fake = criterion(out, label)
        errD_fake.backward()
        p_fake = out.mean().item()
        optimizerD.step()

        # now G, which wants D to say real
        netG.zero_grad()
        label.fill_(REAL)
        errG = criterion(netD(fake), label)
        errG.backward()
        optimizerG.step()

        print('%d/%d %d/%d | D %.4f G %.4f | p(real) %.3f p(fake) %.3f' % (
            epoch, opt.niter, i, len(loader), errD_real.item() + errD_fake.item(), errG.item(), p_real, p_fake))
        if i % 100 == 0:
            vutils.save_image(real, '%s/real.png' % opt.outf, normalize=True)
            shown = netG(fixed_noise)
            vutils.save_image(shown.detach(), '%s/fake_%03d.png' % (opt.outf, epoch), normalize=True)

    torch.save(netG.state_dict(), '%s/netG_%d.pth' % (opt.outf, epoch))
    torch.save(netD.state_dict(), '%s/netD_%d.pth' % (opt.outf, epoch))
