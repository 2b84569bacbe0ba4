#!/usr/bin/python3
# red discs <-> blue squares
import argparse
import itertools
import os

import torch
from torch.utils.data import DataLoader
from torch.autograd import Variable

from models import Generator, PatchD
from utils import ReplayBuffer, LambdaLR, Logger, weights_init_normal
from datasets import ImageDataset, prepare_toy_data

parser = argparse.ArgumentParser()
parser.add_argument('--epoch', type=int, default=0, help='starting epoch')
parser.add_argument('--n_epochs', type=int, default=200)
parser.add_argument('--batchSize', type=int, default=1)
parser.add_argument('--dataroot', type=str, default='datasets/shapes/')
parser.add_argument('--lr', type=float, default=0.0002)
parser.add_argument('--decay_epoch', type=int, default=100)
parser.add_argument('--size', type=int, default=16)
parser.add_argument('--nc', type=int, default=3)
parser.add_argument('--cuda', action='store_true', help='use the GPU')
parser.add_argument('--n_cpu', type=int, default=0)
opt = parser.parse_args()
print(opt)

if not os.path.exists('output'):
    os.mkdir('output')
prepare_toy_data(opt.dataroot)

# ------------------------------------------------------------- nets
G_A2B = Generator(opt.nc, opt.nc)
G_B2A = Generator(opt.nc, opt.nc)
D_A = PatchD(opt.nc)
D_B = PatchD(opt.nc)
nets = {'G_A2B': G_A2B, 'G_B2A': G_B2A, 'D_A': D_A, 'D_B': D_B}

for name, net in nets.items():
    if opt.cuda:
        net.cuda()
    net.apply(weights_init_normal)
    if opt.epoch > 0:
        net.load_state_dict(torch.load('output/%s.pth' % name))

l_gan = torch.nn.MSELoss()
l_cycle = torch.nn.L1Loss()
l_same = torch.nn.L1Loss()

opt_G = torch.optim.Adam(itertools.chain(G_A2B.parameters(), G_B2A.parameters()), lr=opt.lr, betas=(0.5, 0.999))
opt_D_A = torch.optim.Adam(D_A.parameters(), lr=opt.lr, betas=(0.5, 0.999))
opt_D_B = torch.optim.Adam(D_B.parameters(), lr=opt.lr, betas=(0.5, 0.999))

decay = LambdaLR(opt.n_epochs, opt.epoch, opt.decay_epoch).step
schedulers = [torch.optim.lr_scheduler.LambdaLR(o, lr_lambda=decay) for o in (opt_G, opt_D_A, opt_D_B)]

# memory for the inputs, used again and again
Tensor = torch.cuda.FloatTensor if opt.cuda else torch.FloatTensor
input_A = Tensor(opt.batchSize, opt.nc, opt.size, opt.size)
input_B = Tensor(opt.batchSize, opt.nc, opt.size, opt.size)
ones = Variable(Tensor(opt.batchSize).fill_(1.0), requires_grad=False)
zeros = Variable(Tensor(opt.batchSize).fill_(0.0), requires_grad=False)

fakes_A = ReplayBuffer()
fakes_B = ReplayBuffer()

dataloader = DataLoader(ImageDataset(opt.dataroot, unaligned=True),
                        batch_size=opt.batchSize, shuffle=True, num_workers=opt.n_cpu, drop_last=True)
logger = Logger(opt.n_epochs, len(dataloader), 'output/loss.csv')

# --------------------------------------------------------- training
for epoch in range(opt.epoch, opt.n_epochs):
    for i, batch in enumerate(dataloader):
        real_A = Variable(input_A.copy_(batch['A']))
        real_B = Variable(input_B.copy_(batch['B']))

        # both generators at once
        opt_G.zero_grad()
        loss_same = l_same(G_A2B(real_B), real_B) + l_same(G_B2A(real_A), real_A)
        fake_B = G_A2B(real_A)
        fake_A = G_B2A(real_B)
        loss_fool = l_gan(D_B(fake_B), ones) + l_gan(D_A(fake_A), ones)
        loss_cycle = l_cycle(G_B2A(fake_B), real_A) + l_cycle(G_A2B(fake_A), real_B)
        loss_G = loss_fool + 10.0 * loss_cycle + 5.0 * loss_same
        loss_G.backward()
        opt_G.step()

        # discriminator of A
        opt_D_A.zero_grad()
        old_A = fakes_A.push_and_pop(fake_A)
        loss_D_A = 0.5 * (l_gan(D_A(real_A), ones) + l_gan(D_A(old_A.detach()), zeros))
        loss_D_A.backward()
        opt_D_A.step()

        # discriminator of B
        opt_D_B.zero_grad()
        old_B = fakes_B.push_and_pop(fake_B)
        loss_D_B = 0.5 * (l_gan(D_B(real_B), ones) + l_gan(D_B(old_B.detach()), zeros))
        loss_D_B.backward()
        opt_D_B.step()

        logger.log(G=loss_G, same=loss_same, cycle=loss_cycle, D=loss_D_A + loss_D_B)

    for s in schedulers:
        s.step()

    for name, net in nets.items():
        torch.save(net.state_dict(), 'output/%s.pth' % name)
