"""A small GAN on 8x8 digits, after the DCGAN example."""
import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class Generator(nn.Module):
    def __init__(self, nz, ngf):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(nz, ngf * 4, bias=False),
            nn.BatchNorm1d(ngf * 4),
            nn.ReLU(True),
            nn.Linear(ngf * 4, ngf * 4, bias=False),
            nn.BatchNorm1d(ngf * 4),
            nn.ReLU(True),
            nn.Linear(ngf * 4, 64),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z).view(-1, 1, 8, 8)


class Discriminator(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 3, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ndf, ndf * 2, 3, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(ndf * 2 * 4, 1),
        )

    def forward(self, x):
        return self.main(x).view(-1)


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight, 0.0, 0.1)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


def update_ema(ema, net, decay):
    with torch.no_grad():
        params = dict(net.named_parameters())
        for name, p in ema.named_parameters():
            p.mul_(decay).add_(params[name], alpha=1 - decay)
        buffers = dict(net.named_buffers())
        for name, b in ema.named_buffers():
            b.copy_(buffers[name])


def evaluate(netD, ema, loader, fixed_noise, device):
    """How real D finds held-out digits and EMA samples; distance of the samples' mean and deviation."""
    netD.eval()
    ema.eval()
    hits, count = 0, 0
    pixel_sum = torch.zeros(64, device=device)
    pixel_sq = torch.zeros(64, device=device)
    with torch.no_grad():
        for (real,) in loader:
            real = real.to(device)
            hits += (netD(real) > 0).sum().item()
            count += real.size(0)
            pixel_sum += real.flatten(1).sum(0)
            pixel_sq += real.flatten(1).pow(2).sum(0)
        fake = ema(fixed_noise)
        fake_hits = (netD(fake) > 0).float().mean().item()
        mean = pixel_sum / count
        std = (pixel_sq / count - mean ** 2).clamp(min=0).sqrt()
        fake = fake.flatten(1)
        distance = ((fake.mean(0) - mean).norm() + (fake.std(0, unbiased=False) - std).norm()).item()
    return hits / count, fake_hits, distance


def main(opt):
    random.seed(opt.manualSeed)
    torch.manual_seed(opt.manualSeed)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        os.makedirs(opt.outf)
    except OSError:
        pass

    images = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 8.0 - 1.0
    train_set, test_set = TensorDataset(images[:1500]), TensorDataset(images[1500:])
    dataloader = DataLoader(train_set, batch_size=opt.batchSize, shuffle=True, drop_last=True)
    testloader = DataLoader(test_set, batch_size=64)

    netG = Generator(opt.nz, opt.ngf).to(device)
    netG.apply(weights_init)
    netD = Discriminator(opt.ndf).to(device)
    netD.apply(weights_init)
    ema = Generator(opt.nz, opt.ngf).to(device)
    ema.load_state_dict(netG.state_dict())

    criterion = nn.BCEWithLogitsLoss()
    fixed_noise = torch.randn(200, opt.nz, device=device)
    optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))

    best = None
    for epoch in range(opt.niter):
        netG.train()
        netD.train()
        sum_d, sum_g = 0.0, 0.0
        for i, (real,) in enumerate(dataloader):
            real = real.to(device)
            b = real.size(0)
            noise = torch.randn(b, opt.nz, device=device)
            fake = netG(noise)

            # (1) D: real against fake
            optimizerD.zero_grad()
            out_real = netD(real)
            out_fake = netD(fake.detach())
            errD = criterion(out_real, torch.full_like(out_real, 0.9)) + criterion(out_fake, torch.zeros_like(out_fake))
            errD.backward()
            optimizerD.step()

            # (2) G: fake labels are real for the generator
            optimizerG.zero_grad()
            output = netD(fake)
            errG = criterion(output, torch.ones_like(output))
            errG.backward()
            optimizerG.step()
            update_ema(ema, netG, 0.95)

            sum_d += errD.item()
            sum_g += errG.item()
        n = len(dataloader)
        real_score, fake_score, distance = evaluate(netD, ema, testloader, fixed_noise, device)
        print(
            "[%d/%d] Loss_D: %.4f Loss_G: %.4f D(real): %.4f D(fake): %.4f distance: %.4f"
            % (epoch + 1, opt.niter, sum_d / n, sum_g / n, real_score, fake_score, distance)
        )
        torch.save(
            {
                "epoch": epoch,
                "netG": netG.state_dict(),
                "netD": netD.state_dict(),
                "optimizerG": optimizerG.state_dict(),
                "optimizerD": optimizerD.state_dict(),
            },
            "%s/last.pth" % opt.outf,
        )
        if best is None or distance < best:
            best = distance
            torch.save(ema.state_dict(), "%s/ema_best.pth" % opt.outf)
            np.save("%s/samples.npy" % opt.outf, ema(fixed_noise[:16]).detach().cpu().numpy())
    print("best distance %.4f" % best)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batchSize", type=int, default=50)
    parser.add_argument("--nz", type=int, default=16)
    parser.add_argument("--ngf", type=int, default=16)
    parser.add_argument("--ndf", type=int, default=16)
    parser.add_argument("--niter", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--beta1", type=float, default=0.5)
    parser.add_argument("--outf", default="samples")
    parser.add_argument("--manualSeed", "--seed", type=int, default=999)
    main(parser.parse_args())
