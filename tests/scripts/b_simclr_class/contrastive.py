import logging
import os
import socket
import sys
from datetime import datetime

import torch
import torch.nn.functional as F
from torch.amp import GradScaler, autocast
from tqdm import tqdm

from minitb import SummaryWriter
from utils import accuracy, save_checkpoint, save_config_file


class Contrastive(object):
    def __init__(self, **kwargs):
        self.args = kwargs['args']
        self.model = kwargs['model'].to(self.args.device)
        self.optimizer = kwargs['optimizer']
        self.scheduler = kwargs['scheduler']
        stamp = datetime.now().strftime('%m%d-%H%M%S')
        self.writer = SummaryWriter(os.path.join('runs', '%s_%s' % (stamp, socket.gethostname())))
        logging.basicConfig(filename=os.path.join(self.writer.log_dir, 'training.log'), level=logging.INFO)
        self.criterion = torch.nn.CrossEntropyLoss().to(self.args.device)
        self.n_iter = 0

    def info_nce(self, features):
        """rows 0..B-1 and B..2B-1 are the two views of the same image"""
        n = len(features)
        partner = (torch.arange(n, device=features.device) + n // self.args.n_views) % n
        z = F.normalize(features, dim=1)
        sim = z @ z.T / self.args.temperature
        sim = sim.masked_fill(torch.eye(n, dtype=torch.bool, device=sim.device), float('-inf'))
        return sim, partner

    def step(self, views):
        x = torch.cat(views, dim=0).to(self.args.device)
        with autocast(self.args.device.type, enabled=self.args.fp16_precision):
            logits, target = self.info_nce(self.model(x))
            loss = self.criterion(logits, target)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss, logits, target

    def log(self, loss, logits, target):
        top1, top5 = accuracy(logits, target, topk=(1, 5))
        for tag, value in [('loss', loss), ('acc/top1', top1[0]), ('acc/top5', top5[0]),
                           ('lr', self.scheduler.get_last_lr()[0])]:
            self.writer.add_scalar(tag, value, global_step=self.n_iter)
        return top1[0]

    def train(self, train_loader):
        self.scaler = GradScaler(enabled=self.args.fp16_precision)
        save_config_file(self.writer.log_dir, self.args)
        logging.info(f"{self.args.epochs} epochs of {len(train_loader)} batches on {self.args.device}")
        for epoch in range(self.args.epochs):
            total = 0
            for views, _ in tqdm(train_loader):
                loss, logits, target = self.step(views)
                total += loss.item()
                if self.n_iter % self.args.log_every_n_steps == 0:
                    top1 = self.log(loss, logits, target)
                self.n_iter += 1
            if epoch >= 2:      # constant at first
                self.scheduler.step()
            msg = f"epoch {epoch}  mean loss {total / len(train_loader):.4f}  last top1 {top1:.2f}"
            print(msg)
            logging.info(msg)
        path = os.path.join(self.writer.log_dir, 'checkpoint_{:04d}.pth.tar'.format(self.args.epochs))
        save_checkpoint({'epoch': self.args.epochs, 'arch': self.args.arch,
                         'state_dict': self.model.state_dict(),
                         'optimizer': self.optimizer.state_dict()}, is_best=False, filename=path)
        logging.info("written to " + path)
        self.writer.close()
        return path
