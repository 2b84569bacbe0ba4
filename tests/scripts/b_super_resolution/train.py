import argparse
import copy
import os
import time

import torch
import torch.nn as nn
from torch.utils.data.dataloader import DataLoader
from tqdm import tqdm

from models import SRNet
from datasets import PatchDataset, prepare
from utils import AverageMeter, calc_psnr

parser = argparse.ArgumentParser()
parser.add_argument('--cache-dir', default='cache')
parser.add_argument('--outputs-dir', required=True)
parser.add_argument('--init-from', default=None)
parser.add_argument('--scale', type=int, default=2)
parser.add_argument('--lr', type=float, default=2e-3)
parser.add_argument('--batch-size', type=int, default=16)
parser.add_argument('--num-epochs', type=int, default=300)
parser.add_argument('--seed', type=int, default=123)


def load_matching(model, path):
    """copy what fits, ignore the rest (x2 -> x4)"""
    own = model.state_dict()
    loaded = torch.load(path, map_location=lambda storage, loc: storage)
    for k, v in loaded.items():
        if k in own and own[k].shape == v.shape:
            own[k].copy_(v)
        else:
            print('skip', k)


def one_epoch(model, loader, criterion, optimizer, device, title, n):
    model.train()
    meter = AverageMeter()
    bar = tqdm(total=n, ncols=80, desc=title)
    for lo, hi in loader:
        lo, hi = lo.to(device), hi.to(device)
        optimizer.zero_grad()
        loss = criterion(model(lo), hi)
        loss.backward()
        optimizer.step()
        meter.update(loss.item(), len(lo))
        bar.set_postfix(loss='%.5f' % meter.avg)
        bar.update(len(lo))
    bar.close()
    return meter.avg


def psnr_of(model, loader, device):
    model.eval()
    meter = AverageMeter()
    for lo, hi in loader:
        lo, hi = lo.to(device), hi.to(device)
        with torch.no_grad():
            out = model(lo).clamp(0.0, 1.0)
        meter.update(calc_psnr(out, hi), len(lo))
    return meter.avg


if __name__ == '__main__':
    args = parser.parse_args()
    out_dir = os.path.join(args.outputs_dir, 'x%d' % args.scale)
    if not os.path.exists(out_dir):
        os.makedirs(out_dir)
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(args.seed)
    device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')

    train_file, eval_file = prepare(args.cache_dir, args.scale)
    train_dataset = PatchDataset(train_file)
    eval_dataset = PatchDataset(eval_file)
    train_loader = DataLoader(train_dataset, batch_size=args.batch_size, shuffle=True,
                              pin_memory=torch.cuda.is_available())
    eval_loader = DataLoader(eval_dataset, batch_size=1)

    model = SRNet(args.scale).to(device)
    if args.init_from:
        load_matching(model, args.init_from)
    # upsampling layer slower
    optimizer = torch.optim.Adam([
        {'params': model.first_part.parameters()},
        {'params': model.last_part.parameters(), 'lr': args.lr * 0.1},
    ], lr=args.lr)
    criterion = nn.MSELoss()

    best = {'epoch': 0, 'psnr': 0.0, 'weights': copy.deepcopy(model.state_dict())}
    written = []
    for epoch in range(args.num_epochs):
        if epoch == int(args.num_epochs * 0.8):
            for g in optimizer.param_groups:
                g['lr'] *= 0.1
        t0 = time.time()
        loss = one_epoch(model, train_loader, criterion, optimizer, device,
                         'epoch %d/%d' % (epoch, args.num_epochs - 1), len(train_dataset))
        psnr = psnr_of(model, eval_loader, device)
        print('epoch %d  loss %.5f  eval psnr %.3f dB  %.1fs' % (epoch, loss, psnr, time.time() - t0))

        path = os.path.join(out_dir, 'epoch_%d.pth' % epoch)
        torch.save(model.state_dict(), path)
        written.append(path)
        if len(written) > 2:        # keep two
            os.remove(written.pop(0))
        if psnr > best['psnr']:
            best.update(epoch=epoch, psnr=psnr, weights=copy.deepcopy(model.state_dict()))

    print('best epoch %d, %.2f dB' % (best['epoch'], best['psnr']))
    torch.save(best['weights'], os.path.join(out_dir, 'best.pth'))
