"""A small GAN on 8x8 digits, after the DCGAN example; torchrun --nproc-per-node=2 ddp.py."""
import argparse
import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


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


def wrap(net, device):
    if not dist.is_initialized():
        return net
    return DistributedDataParallel(net, device_ids=[device.index] if device.type == "cuda" else None)


def bare(net):
    return net.module if isinstance(net, DistributedDataParallel) else net


def total(*values, device):
    """Sums over all ranks."""
    values = torch.tensor(values, dtype=torch.float64, device=device)
    if dist.is_initialized():
        dist.all_reduce(values)
    return values.tolist()


def sync_buffers(net):
    if not dist.is_initialized():
        return
    for b in net.buffers():
        if b.dtype.is_floating_point:
            dist.all_reduce(b)
            b.div_(dist.get_world_size())


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
        if dist.is_initialized():
            dist.all_reduce(pixel_sum)
            dist.all_reduce(pixel_sq)
        hits, count = total(hits, count, device=device)
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
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if world_size > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    if rank == 0:
        os.makedirs(opt.outf, exist_ok=True)

    images = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 8.0 - 1.0
    train_set, test_set = TensorDataset(images[:1500]), TensorDataset(images[1500:])
    sampler = DistributedSampler(train_set, world_size, rank, shuffle=True, seed=opt.manualSeed, drop_last=True)
    dataloader = DataLoader(train_set, batch_size=opt.batchSize, sampler=sampler, drop_last=True)
    testloader = DataLoader(Subset(test_set, range(rank, len(test_set), world_size)), batch_size=64)

    netG = Generator(opt.nz, opt.ngf).to(device)
    netG.apply(weights_init)
    netD = Discriminator(opt.ndf).to(device)
    netD.apply(weights_init)
    ema = Generator(opt.nz, opt.ngf).to(device)
    ema.load_state_dict(netG.state_dict())

    netG, netD = wrap(netG, device), wrap(netD, device)

    criterion = nn.BCEWithLogitsLoss()
    fixed_noise = torch.randn(200, opt.nz, device=device)
    optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))

    # the noise of each rank is its own
    torch.manual_seed(opt.manualSeed + 1000 * (rank + 1))

    best = None
    for epoch in range(opt.niter):
        sampler.set_epoch(epoch)
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
            update_ema(ema, bare(netG), 0.95)

            sum_d += errD.item()
            sum_g += errG.item()
        sync_buffers(netG)
        sync_buffers(ema)
        sum_d, sum_g, n = total(sum_d, sum_g, len(dataloader), device=device)
        real_score, fake_score, distance = evaluate(bare(netD), ema, testloader, fixed_noise, device)
        if rank == 0:
            print(
                "[%d/%d] Loss_D: %.4f Loss_G: %.4f D(real): %.4f D(fake): %.4f distance: %.4f"
                % (epoch + 1, opt.niter, sum_d / n, sum_g / n, real_score, fake_score, distance)
            )
            torch.save(
                {
                    "epoch": epoch,
                    "netG": bare(netG).state_dict(),
                    "netD": bare(netD).state_dict(),
                    "optimizerG": optimizerG.state_dict(),
                    "optimizerD": optimizerD.state_dict(),
                },
                "%s/last.pth" % opt.outf,
            )
        if best is None or distance < best:
            best = distance
            if rank == 0:
                torch.save(ema.state_dict(), "%s/ema_best.pth" % opt.outf)
                np.save("%s/samples.npy" % opt.outf, ema(fixed_noise[:16]).detach().cpu().numpy())
    if rank == 0:
        print("best distance %.4f" % best)
    if dist.is_initialized():
        dist.destroy_process_group()


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
