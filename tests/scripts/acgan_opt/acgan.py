import argparse
import os
import sys
import numpy as np
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torch.autograd import Variable

from vutils import save_image
from datasets import MNIST

os.makedirs("images", exist_ok=True)

parser = argparse.ArgumentParser()
parser.add_argument("--n_epochs", type=int, default=200)
parser.add_argument("--batch_size", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.0002)
parser.add_argument("--b1", type=float, default=0.5)
parser.add_argument("--b2", type=float, default=0.999)
parser.add_argument("--latent_dim", type=int, default=24)
parser.add_argument("--n_classes", type=int, default=10)
parser.add_argument("--img_size", type=int, default=28)
parser.add_argument("--channels", type=int, default=1)
parser.add_argument("--sample_interval", type=int, default=400, help="batches between image grids")
opt = parser.parse_args()
print(opt)

cuda = True if torch.cuda.is_available() else False
FloatTensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
LongTensor = torch.cuda.LongTensor if cuda else torch.LongTensor


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = opt.img_size // 4
        self.class_emb = nn.Embedding(opt.n_classes, opt.latent_dim)
        self.spread = nn.Linear(opt.latent_dim, 12 * self.side ** 2)
        self.paint = nn.Sequential(
            nn.BatchNorm2d(12),
            nn.ConvTranspose2d(12, 12, 4, 2, 1), nn.BatchNorm2d(12, 0.8), nn.LeakyReLU(0.2, inplace=True),
            nn.ConvTranspose2d(12, opt.channels, 4, 2, 1), nn.Tanh(),
        )

    def forward(self, z, labels):
        h = self.spread(self.class_emb(labels) * z)
        return self.paint(h.view(h.size(0), 12, self.side, self.side))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()

        def layer(i, o, norm=True):
            yield nn.Conv2d(i, o, 3, 2, 1)
            yield nn.LeakyReLU(0.2, inplace=True)
            yield nn.Dropout2d(0.25)
            if norm:
                yield nn.BatchNorm2d(o, 0.8)

        self.look = nn.Sequential(*layer(opt.channels, 8, norm=False), *layer(8, 16), *layer(16, 32))
        flat = 32 * math.ceil(opt.img_size / 8) ** 2
        self.real_or_not = nn.Sequential(nn.Linear(flat, 1), nn.Sigmoid())
        self.which_class = nn.Linear(flat, opt.n_classes)

    def forward(self, img):
        h = self.look(img).flatten(1)
        return self.real_or_not(h), self.which_class(h)


def init_normal(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.02)


adversarial_loss = nn.BCELoss()
auxiliary_loss = nn.CrossEntropyLoss()
generator = Generator()
discriminator = Discriminator()

if cuda:
    generator.cuda()
    discriminator.cuda()
    adversarial_loss.cuda()
    auxiliary_loss.cuda()

generator.apply(init_normal)
discriminator.apply(init_normal)

os.makedirs("data/mnist", exist_ok=True)
dataloader = DataLoader(
    MNIST("data/mnist", train=True, download=True,
          transform=lambda im: torch.from_numpy(np.array(im, dtype=np.float32))[None] / 127.5 - 1),
    batch_size=opt.batch_size,
    shuffle=True,
)

optimizer_G = torch.optim.Adam(generator.parameters(), lr=opt.lr, betas=(opt.b1, opt.b2))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=opt.lr, betas=(opt.b1, opt.b2))


def sample_image(n_row, batches_done):
    """one class in each column"""
    z = Variable(FloatTensor(np.random.normal(0, 1, (n_row ** 2, opt.latent_dim))))
    labels = Variable(LongTensor(np.tile(np.arange(n_row), n_row)))
    save_image(generator(z, labels).data, "images/%d.png" % batches_done, nrow=n_row, normalize=True)


# ---------------------------------------------
# training
# ---------------------------------------------
for epoch in range(opt.n_epochs):
    for i, (imgs, labels) in enumerate(dataloader):
        n = imgs.shape[0]
        valid = Variable(FloatTensor(n, 1).fill_(1.0), requires_grad=False)
        fake = Variable(FloatTensor(n, 1).fill_(0.0), requires_grad=False)
        real_imgs = Variable(imgs.type(FloatTensor))
        labels = Variable(labels.type(LongTensor))

        # --- G
        optimizer_G.zero_grad()
        z = Variable(FloatTensor(np.random.normal(0, 1, (n, opt.latent_dim))))
        gen_labels = Variable(LongTensor(np.random.randint(0, opt.n_classes, n)))
        gen_imgs = generator(z, gen_labels)
        validity, pred_label = discriminator(gen_imgs)
        g_loss = 0.5 * (adversarial_loss(validity, valid) + auxiliary_loss(pred_label, gen_labels))
        g_loss.backward()
        optimizer_G.step()

        # --- D
        optimizer_D.zero_grad()
        real_pred, real_aux = discriminator(real_imgs)
        fake_pred, fake_aux = discriminator(gen_imgs.detach())
        d_loss = 0.25 * (adversarial_loss(real_pred, valid) + auxiliary_loss(real_aux, labels)
                         + adversarial_loss(fake_pred, fake) + auxiliary_loss(fake_aux, gen_labels))

        pred = np.concatenate([real_aux.data.cpu().numpy(), fake_aux.data.cpu().numpy()], axis=0)
        truth = np.concatenate([labels.data.cpu().numpy(), gen_labels.data.cpu().numpy()], axis=0)
        d_acc = np.mean(pred.argmax(1) == truth)
        d_loss.backward()
        optimizer_D.step()

        batches_done = epoch * len(dataloader) + i
        print("[%d/%d %d/%d] D %.4f (class acc %d%%) G %.4f"
              % (epoch, opt.n_epochs, i, len(dataloader), d_loss.item(), 100 * d_acc, g_loss.item()))
        if batches_done % opt.sample_interval == 0:
            sample_image(10, batches_done)
