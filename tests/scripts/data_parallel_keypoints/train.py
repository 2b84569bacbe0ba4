# -*- coding: utf-8 -*-
# @Author : lin
# heatmaps of three points
import os
import sys
import time
import argparse
import logging
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument('--gpus', default='0', type=str)
parser.add_argument('--batch_size', default=16, type=int)
parser.add_argument('--epochs', default=20, type=int)
parser.add_argument('--lr', default=2e-3, type=float)
parser.add_argument('--lr_step', default='1', type=str)
parser.add_argument('--load_model', default='')
parser.add_argument('--exp', default='exp', type=str)
opt = parser.parse_args()
os.environ['CUDA_VISIBLE_DEVICES'] = opt.gpus

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from dataset import PointsDataset
from model import HourNet

opt.gpus = [int(i) for i in opt.gpus.split(',')]
opt.lr_step = [int(i) for i in opt.lr_step.split(',')]
run_dir = os.path.join(opt.exp, time.strftime('%Y%m%d_%H%M%S'))
if not os.path.exists(run_dir):
    os.makedirs(run_dir)
logging.basicConfig(filename=os.path.join(run_dir, 'log.txt'), level=logging.INFO, format='%(asctime)s %(message)s')
console = logging.StreamHandler(sys.stdout)
logging.getLogger('').addHandler(console)


class ModelWithLoss(nn.Module):
    '''so that DataParallel computes the loss on each card'''
    def __init__(self, model, loss):
        super(ModelWithLoss, self).__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch):
        out = self.model(batch['input'])
        loss = self.loss(out, batch['hm'])
        return out, loss


class FocalLoss(nn.Module):
    def forward(self, out, gt):
        pred = torch.clamp(out.sigmoid(), 1e-4, 1 - 1e-4)
        pos = gt.eq(1).float()
        neg_w = torch.pow(1 - gt, 4) * (1 - pos)
        pos_loss = (torch.log(pred) * torch.pow(1 - pred, 2) * pos).sum()
        neg_loss = (torch.log(1 - pred) * torch.pow(pred, 2) * neg_w).sum()
        num_pos = pos.sum()
        if num_pos == 0:
            return -neg_loss
        return -(pos_loss + neg_loss) / num_pos


def save_model(path, epoch, model, optimizer=None):
    if isinstance(model, torch.nn.DataParallel):
        state_dict = model.module.state_dict()
    else:
        state_dict = model.state_dict()
    data = {'epoch': epoch, 'state_dict': state_dict}
    if optimizer is not None:
        data['optimizer'] = optimizer.state_dict()
    torch.save(data, path)


def load_model(model, path, optimizer=None):
    checkpoint = torch.load(path, map_location=lambda storage, loc: storage)
    state_dict = {}
    for k, v in checkpoint['state_dict'].items():
        # convert data_parallel to model
        state_dict[k[7:] if k.startswith('module.') else k] = v
    missing = model.load_state_dict(state_dict, strict=False)
    print('loaded', path, 'epoch', checkpoint['epoch'], missing)
    if optimizer is not None and 'optimizer' in checkpoint:
        optimizer.load_state_dict(checkpoint['optimizer'])
    return model


device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
train_loader = DataLoader(PointsDataset('train'), opt.batch_size, True, num_workers=0, pin_memory=False, drop_last=True)
val_loader = DataLoader(PointsDataset('val'), 10, False)

model = HourNet(heads=3)
if opt.load_model != '':
    model = load_model(model, opt.load_model)
model = nn.DataParallel(model, device_ids=opt.gpus if torch.cuda.is_available() else None)
model = model.to(device)

# weights and biases apart
decay, no_decay = [], []
for name, p in model.named_parameters():
    if not p.requires_grad:
        continue
    if name.startswith('module.bn') or name.endswith('.bias'):
        no_decay.append(p)
    else:
        decay.append(p)
optimizer = torch.optim.Adam([{'params': decay, 'weight_decay': 1e-4}, {'params': no_decay, 'weight_decay': 0.}], lr=opt.lr)
model_with_loss = ModelWithLoss(model, FocalLoss())

logging.info('heads %d, stride %d' % (model.module.heads, model.module.stride))
best = 1e10
for epoch in range(1, opt.epochs + 1):
    model_with_loss.train()
    total, n = 0., 0
    for it, batch in enumerate(train_loader):
        for k in batch:
            if k != 'meta':
                batch[k] = batch[k].to(device=device, non_blocking=True)
        out, loss = model_with_loss(batch)
        loss = loss.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * batch['input'].size(0)
        n += batch['input'].size(0)
        if it % 5 == 0:
            logging.info('epoch %d [%d/%d] loss %.4f' % (epoch, it, len(train_loader), total / n))

    # error in pixels
    model.eval()
    err = np.zeros(model.module.heads)
    val_loss = 0.
    with torch.no_grad():
        for batch in val_loader:
            hm = model.module(batch['input'].to(device))
            val_loss += FocalLoss()(hm, batch['hm'].to(device)).item()
            pts = model.module.decode(hm).cpu().numpy()
            err += np.linalg.norm(pts - batch['meta'].numpy(), axis=2).sum(axis=0)
    err /= len(val_loader.dataset)
    val_loss /= len(val_loader)
    logging.info('epoch %d val loss %.4f, error %s px' % (epoch, val_loss, np.round(err, 2)))
    if err.mean() < best:
        best = err.mean()
        save_model(os.path.join(run_dir, 'model_best.pth'), epoch, model)
    save_model(os.path.join(run_dir, 'model_last.pth'), epoch, model, optimizer)
    if epoch in opt.lr_step:
        lr = opt.lr * (0.1 ** (opt.lr_step.index(epoch) + 1))
        print('Drop LR to', lr)
        for g in optimizer.param_groups:
            g['lr'] = lr
