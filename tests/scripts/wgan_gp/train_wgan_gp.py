import os, sys
sys.path.append(os.getcwd())
import time
import pickle
import numpy as np
import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt
import sklearn.datasets

import torch
import torch.autograd as autograd
import torch.nn as nn
import torch.optim as optim
from torch.autograd import Variable

TOY = 'ring'            # ring | roll
WIDTH = 32
GP_WEIGHT = .1          # enough for two dimensions
N_CRITIC = 3
BATCH = 64
STEPS = 60
OUT = 'tmp/' + TOY
gpu = torch.cuda.is_available()

if not os.path.exists(OUT):
    os.makedirs(OUT)


def mlp(n_in, n_out, act):
    return nn.Sequential(nn.Linear(n_in, WIDTH), act, nn.Linear(WIDTH, WIDTH), act, nn.Linear(WIDTH, n_out))


class G(nn.Module):
    def __init__(self):
        super(G, self).__init__()
        self.net = mlp(2, 2, nn.ReLU(True))

    def forward(self, z):
        return self.net(z)


class D(nn.Module):
    def __init__(self):
        super(D, self).__init__()
        self.net = mlp(2, 1, nn.LeakyReLU(0.2))

    def forward(self, x):
        return self.net(x).view(-1)


def init_weights(m):
    if m.__class__.__name__.find('Linear') != -1:
        m.weight.data.normal_(0.0, 0.1)
        m.bias.data.fill_(0)


class Points(torch.utils.data.Dataset):
    def __init__(self, n=2000):
        if TOY == 'roll':
            pts = sklearn.datasets.make_swiss_roll(n_samples=n, noise=0.25)[0][:, [0, 2]] / 7.5
        else:
            a = np.random.randint(0, 8, n) * np.pi / 4
            pts = 1.4 * np.stack([np.cos(a), np.sin(a)], 1) + .02 * np.random.randn(n, 2)
        self.pts = pts.astype('float32')

    def __len__(self):
        return len(self.pts)

    def __getitem__(self, i):
        return self.pts[i]


loader = torch.utils.data.DataLoader(Points(), batch_size=BATCH, shuffle=True, drop_last=True)


def forever():
    while True:
        for pts in loader:
            yield pts


def noise(n=BATCH):
    z = torch.randn(n, 2)
    return Variable(z.cuda() if gpu else z)


def penalty(net, real, fake):
    """(|grad D| - 1)^2 somewhere between real and fake"""
    eps = torch.rand(real.size(0), 1)
    if gpu:
        eps = eps.cuda()
    between = Variable(eps * real + (1 - eps) * fake, requires_grad=True)
    out = net(between)
    ones = torch.ones(out.size())
    grad = autograd.grad(outputs=out, inputs=between, grad_outputs=ones.cuda() if gpu else ones,
                         create_graph=True, retain_graph=True, only_inputs=True)[0]
    return GP_WEIGHT * ((grad.norm(2, dim=1) - 1) ** 2).mean()


history = {'critic': [], 'distance': [], 'generator': []}


def report(step, real):
    print('step %d ' % step + ' '.join('%s %.4f' % (k, np.mean(v[-20:])) for k, v in history.items()))
    for k, v in history.items():
        plt.clf()
        plt.plot(v)
        plt.savefig('%s/%s.png' % (OUT, k))
    fake = netG(noise()).cpu().data.numpy()
    plt.clf()
    plt.scatter(real[:, 0], real[:, 1], c='k', s=4)
    plt.scatter(fake[:, 0], fake[:, 1], c='r', s=4)
    plt.savefig('%s/points_%d.png' % (OUT, step))
    pickle.dump(history, open(OUT + '/history.pkl', 'wb'))


netG = G()
netD = D()
netG.apply(init_weights)
netD.apply(init_weights)
if gpu:
    netG = netG.cuda()
    netD = netD.cuda()

optD = optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.9))
optG = optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.9))

one = torch.tensor(1.)
if gpu:
    one = one.cuda()
mone = one * -1

data = forever()
t0 = time.time()
for step in range(1, STEPS + 1):

    # ---- critic
    for p in netD.parameters():
        p.requires_grad = True   # switched off for the generator below
    for _ in range(N_CRITIC):
        real = next(data)
        if gpu:
            real = real.cuda()
        real = Variable(real)
        netD.zero_grad()

        d_real = netD(real).mean()
        d_real.backward(mone)

        with torch.no_grad():
            fake = netG(noise())
        d_fake = netD(fake).mean()
        d_fake.backward(one)

        gp = penalty(netD, real.data, fake.data)
        gp.backward()
        optD.step()

    # ---- generator
    for p in netD.parameters():
        p.requires_grad = False
    netG.zero_grad()
    g = netD(netG(noise())).mean()
    g.backward(mone)
    optG.step()

    history['critic'].append((d_fake - d_real + gp).item())
    history['distance'].append((d_real - d_fake).item())
    history['generator'].append(-g.item())
    if step % 30 == 0:
        report(step, real.cpu().numpy())

print('%.1f s' % (time.time() - t0))
torch.save(netG.state_dict(), OUT + '/G.pth')
torch.save(netD, OUT + '/D_whole.pkl')
