import os, sys
sys.path.append(os.getcwd())

import time
import collections
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

MODE = 'wgan-gp'
DATASET = '8gaussians'  # 8gaussians or swissroll
DIM = 32
LAMBDA = .1   # small is enough for toys
CRITIC_ITERS = 3
BATCH_SIZE = 64
ITERS = 60
use_cuda = torch.cuda.is_available()

if not os.path.exists('tmp/' + DATASET):
    os.makedirs('tmp/' + DATASET)

# ==================Definition Start======================

class Generator(nn.Module):

    def __init__(self):
        super(Generator, self).__init__()
        self.main = nn.Sequential(
            nn.Linear(2, DIM),
            nn.ReLU(True),
            nn.Linear(DIM, DIM),
            nn.ReLU(True),
            nn.Linear(DIM, 2),
        )

    def forward(self, noise):
        return self.main(noise)


class Discriminator(nn.Module):

    def __init__(self):
        super(Discriminator, self).__init__()
        self.main = nn.Sequential(
            nn.Linear(2, DIM),
            nn.LeakyReLU(0.2),
            nn.Linear(DIM, DIM),
            nn.LeakyReLU(0.2),
            nn.Linear(DIM, 1),
        )

    def forward(self, inputs):
        return self.main(inputs).view(-1)


def weights_init(m):
    if m.__class__.__name__.find('Linear') != -1:
        m.weight.data.normal_(0.0, 0.1)
        m.bias.data.fill_(0)


# ------------------------------------------------ log
_since_beginning = collections.defaultdict(lambda: {})
_since_last_flush = collections.defaultdict(lambda: {})
_iter = [0]

def plot(name, value):
    _since_last_flush[name][_iter[0]] = value

def tick():
    _iter[0] += 1

def flush():
    prints = []
    for name, vals in _since_last_flush.items():
        prints.append("{} {:.4f}".format(name, np.mean(list(vals.values()))))
        _since_beginning[name].update(vals)
        x_vals = np.sort(list(_since_beginning[name].keys()))
        plt.clf()
        plt.plot(x_vals, [_since_beginning[name][x] for x in x_vals])
        plt.savefig('tmp/' + DATASET + '/' + name.replace(' ', '_') + '.jpg')
    print("iter {} | {}".format(_iter[0], ", ".join(prints)))
    _since_last_flush.clear()
    with open('tmp/' + DATASET + '/log.pkl', 'wb') as f:
        pickle.dump(dict(_since_beginning), f, pickle.HIGHEST_PROTOCOL)


def generate_image(true_dist):
    """points of both distributions, for the eye"""
    noise = torch.randn(BATCH_SIZE, 2)
    if use_cuda:
        noise = noise.cuda()
    samples = netG(Variable(noise)).cpu().data.numpy()
    plt.clf()
    plt.scatter(true_dist[:, 0], true_dist[:, 1], c='orange', marker='+')
    plt.scatter(samples[:, 0], samples[:, 1], c='green', marker='+')
    plt.savefig('tmp/' + DATASET + '/frame' + str(_iter[0]) + '.jpg')


# Dataset iterator
class Points(torch.utils.data.Dataset):
    def __init__(self, n=2000):
        if DATASET == 'swissroll':
            data = sklearn.datasets.make_swiss_roll(n_samples=n, noise=0.25)[0]
            self.data = data.astype('float32')[:, [0, 2]] / 7.5
        else:
            angles = np.random.randint(0, 8, n) * np.pi / 4
            centers = 2. * np.stack([np.cos(angles), np.sin(angles)], 1)
            self.data = ((centers + .02 * np.random.randn(n, 2)) / 1.414).astype('float32')

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]


loader = torch.utils.data.DataLoader(Points(), batch_size=BATCH_SIZE, shuffle=True, drop_last=True)

def inf_train_gen():
    while True:
        for points in loader:
            yield points


def calc_gradient_penalty(netD, real_data, fake_data):
    alpha = torch.rand(real_data.size(0), 1)
    alpha = alpha.expand(real_data.size())
    alpha = alpha.cuda() if use_cuda else alpha

    interpolates = alpha * real_data + ((1 - alpha) * fake_data)
    interpolates = autograd.Variable(interpolates, requires_grad=True)
    disc_interpolates = netD(interpolates)

    gradients = autograd.grad(outputs=disc_interpolates, inputs=interpolates,
                              grad_outputs=torch.ones(disc_interpolates.size()).cuda() if use_cuda else torch.ones(
                                  disc_interpolates.size()),
                              create_graph=True, retain_graph=True, only_inputs=True)[0]

    return ((gradients.norm(2, dim=1) - 1) ** 2).mean() * LAMBDA

# ==================Definition End======================

netG = Generator()
netD = Discriminator()
netD.apply(weights_init)
netG.apply(weights_init)
print(netG)
print(netD)

if use_cuda:
    netD = netD.cuda()
    netG = netG.cuda()

optimizerD = optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.9))
optimizerG = optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.9))

one = torch.tensor(1.)
mone = one * -1
if use_cuda:
    one = one.cuda()
    mone = mone.cuda()

data = inf_train_gen()

for iteration in range(ITERS):
    start_time = time.time()
    # (1) Update D network
    for p in netD.parameters():  # reset requires_grad
        p.requires_grad = True  # they are set to False below in netG update

    for iter_d in range(CRITIC_ITERS):
        real_data = next(data)
        if use_cuda:
            real_data = real_data.cuda()
        real_data_v = autograd.Variable(real_data)

        netD.zero_grad()

        # train with real
        D_real = netD(real_data_v)
        D_real = D_real.mean()
        D_real.backward(mone)

        # train with fake
        noise = torch.randn(BATCH_SIZE, 2)
        if use_cuda:
            noise = noise.cuda()
        with torch.no_grad():
            fake = netG(noise)
        D_fake = netD(fake.detach())
        D_fake = D_fake.mean()
        D_fake.backward(one)

        # train with gradient penalty
        gradient_penalty = calc_gradient_penalty(netD, real_data_v.data, fake.data)
        gradient_penalty.backward()

        D_cost = D_fake - D_real + gradient_penalty
        Wasserstein_D = D_real - D_fake
        optimizerD.step()

    # (2) Update G network
    for p in netD.parameters():
        p.requires_grad = False  # to avoid computation
    netG.zero_grad()

    noise = torch.randn(BATCH_SIZE, 2)
    if use_cuda:
        noise = noise.cuda()
    fake = netG(autograd.Variable(noise))
    G = netD(fake)
    G = G.mean()
    G.backward(mone)
    G_cost = -G
    optimizerG.step()

    plot('disc cost', D_cost.cpu().data.numpy())
    plot('wasserstein distance', Wasserstein_D.cpu().data.numpy())
    plot('gen cost', G_cost.cpu().data.numpy())
    plot('time', time.time() - start_time)
    if iteration % 20 == 19:
        flush()
        generate_image(real_data.cpu().numpy())
    tick()

torch.save(netG.state_dict(), 'tmp/%s/netG.pth' % DATASET)
torch.save(netD, 'tmp/%s/netD_full.pkl' % DATASET)
