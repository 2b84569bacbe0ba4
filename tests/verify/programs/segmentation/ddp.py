# -*- coding: utf-8 -*-
# 语义分割：在生成的图形图像上训练一个小型 U-Net
# 单机多卡：torchrun --nproc-per-node=2 ddp.py
import argparse
import csv
import datetime
import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.distributed import DistributedSampler

CLASSES = ['background', 'disk', 'square']


def draw(index, size=32):
    """按编号生成一张图像和它的标签"""
    rng = np.random.RandomState(index)
    mask = np.zeros((size, size), dtype=np.int64)
    yy, xx = np.mgrid[:size, :size]
    for _ in range(rng.randint(1, 4)):
        cy, cx, r = rng.randint(6, size - 6), rng.randint(6, size - 6), rng.randint(3, 8)
        if rng.rand() < 0.5:
            mask[(yy - cy) ** 2 + (xx - cx) ** 2 <= r ** 2] = 1
        else:
            mask[(abs(yy - cy) <= r) & (abs(xx - cx) <= r)] = 2
    colors = np.array([[0.2, 0.3, 0.3], [0.7, 0.4, 0.3], [0.4, 0.5, 0.8]])
    image = colors[mask] + rng.normal(0, 0.25, (size, size, 3))
    return image.transpose(2, 0, 1).astype(np.float32), mask


class Shapes(Dataset):
    def __init__(self, ids, train):
        self.samples = [draw(i) for i in ids]
        self.train = train

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, idx):
        image, mask = self.samples[idx]
        if self.train:
            if random.random() < 0.5:
                image, mask = image[:, :, ::-1], mask[:, ::-1]
            if random.random() < 0.5:
                image, mask = image[:, ::-1, :], mask[::-1, :]
            image = image * random.uniform(0.8, 1.2)
        image = np.ascontiguousarray(image, dtype=np.float32)
        return torch.from_numpy(image), torch.from_numpy(mask.copy())


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, n_classes, width=8):
        super().__init__()
        self.n_classes = n_classes
        self.enc1 = block(3, width)
        self.enc2 = block(width, width * 2)
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ConvTranspose2d(width * 2, width, 2, stride=2)
        self.dec = block(width * 2, width)
        self.out = nn.Conv2d(width, n_classes, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(self.pool(e1))
        d = self.dec(torch.cat([self.up(e2), e1], dim=1))
        return self.out(d)


class ConfusionMatrix:
    def __init__(self, n):
        self.n = n
        self.mat = np.zeros((n, n), dtype=np.int64)

    def update(self, target, pred):
        k = (target >= 0) & (target < self.n)
        self.mat += np.bincount(self.n * target[k] + pred[k], minlength=self.n ** 2).reshape(self.n, self.n)

    def iou(self):
        inter = np.diag(self.mat)
        union = self.mat.sum(0) + self.mat.sum(1) - inter
        return inter / np.maximum(union, 1)


class EvalSampler(Sampler):
    """验证用：每个样本只出现一次，不补齐"""
    def __init__(self, dataset):
        self.indices = range(dist.get_rank(), len(dataset), dist.get_world_size())

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


def init_distributed():
    """torchrun 启动时读环境变量；直接用 python 启动时就是只有一个进程的进程组"""
    os.environ.setdefault('RANK', '0')
    os.environ.setdefault('WORLD_SIZE', '1')
    os.environ.setdefault('LOCAL_RANK', '0')
    os.environ.setdefault('MASTER_ADDR', '127.0.0.1')
    os.environ.setdefault('MASTER_PORT', '0')
    local_rank = int(os.environ['LOCAL_RANK'])
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        dist.init_process_group('nccl')
        return torch.device('cuda', local_rank)
    dist.init_process_group('gloo')
    return torch.device('cpu')


class Trainer:
    def __init__(self, args):
        self.args = args
        self.device = init_distributed()
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(args.seed)
        random.seed(args.seed)
        # 所有进程用 rank 0 的时间，同一个目录
        stamp = [datetime.datetime.now().strftime('%Y%m%d-%H%M%S-%f')]
        dist.broadcast_object_list(stamp, src=0)
        self.save_dir = os.path.join('runs', stamp[0])
        if self.rank == 0:
            os.makedirs(self.save_dir)
        dist.barrier()

        ids = list(range(301))
        random.Random(0).shuffle(ids)
        self.train_set = Shapes(ids[:240], train=True)
        self.val_set = Shapes(ids[240:], train=False)
        self.train_sampler = DistributedSampler(self.train_set, shuffle=True, seed=args.seed)
        self.train_loader = DataLoader(self.train_set, args.batch_size, sampler=self.train_sampler, num_workers=0)
        self.val_loader = DataLoader(self.val_set, 8, sampler=EvalSampler(self.val_set))

        self.model = UNet(len(CLASSES)).to(self.device)
        self.model = DDP(self.model, device_ids=[self.device.index] if self.device.type == 'cuda' else None)
        random.seed(args.seed + self.rank)  # 数据增强每个进程不同
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
        # poly 学习率策略，每个 iteration 更新一次
        total_iters = args.epochs * len(self.train_loader)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda it: (1 - min(it, total_iters - 1) / total_iters) ** 0.9)
        self.best_miou = 0.0

    def train_one_epoch(self, epoch):
        self.model.train()
        losses = []
        for images, masks in self.train_loader:
            images, masks = images.to(self.device), masks.to(self.device)
            loss = self.criterion(self.model(images), masks)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            losses.append(loss.item())
        return self.reduce(np.mean(losses)) / self.world_size

    def reduce(self, value):
        t = torch.as_tensor(value, device=self.device).clone()
        dist.all_reduce(t)
        return t.cpu().numpy()

    def sync_bn(self):
        # 验证之前各进程 BN 的统计量取平均
        for name, buf in self.model.module.named_buffers():
            if name.endswith('running_mean') or name.endswith('running_var'):
                dist.all_reduce(buf)
                buf /= self.world_size

    @torch.no_grad()
    def validate(self):
        self.sync_bn()
        net = self.model.module
        net.eval()
        cm = ConfusionMatrix(net.n_classes)
        total_loss, n = 0.0, 0
        for images, masks in self.val_loader:
            images, masks = images.to(self.device), masks.to(self.device)
            logits = net(images)
            total_loss += self.criterion(logits, masks).item() * images.size(0)
            n += images.size(0)
            cm.update(masks.cpu().numpy().ravel(), logits.argmax(1).cpu().numpy().ravel())
        cm.mat = self.reduce(cm.mat)
        return self.reduce(total_loss) / self.reduce(n), cm.iou()

    def fit(self):
        if self.rank == 0:
            log = open(os.path.join(self.save_dir, 'log.csv'), 'w', newline='')
            writer = csv.writer(log)
            writer.writerow(['epoch', 'train_loss', 'val_loss', 'miou'])
        for epoch in range(self.args.epochs):
            self.train_sampler.set_epoch(epoch)
            train_loss = self.train_one_epoch(epoch)
            val_loss, iou = self.validate()
            miou = iou.mean()
            if self.rank == 0:
                print('第 %d 轮  训练损失 %.4f  验证损失 %.4f  mIoU %.4f  学习率 %.5f' % (
                    epoch, train_loss, val_loss, miou, self.optimizer.param_groups[0]['lr']))
                for name, value in zip(CLASSES, iou):
                    print('    %-12s IoU %.4f' % (name, value))
                writer.writerow([epoch, '%.5f' % train_loss, '%.5f' % val_loss, '%.5f' % miou])
                log.flush()
            if miou > self.best_miou:
                self.best_miou = miou
                if self.rank == 0:
                    torch.save({'model': self.model.module.state_dict(), 'epoch': epoch, 'miou': float(miou)},
                               os.path.join(self.save_dir, 'best.pth'))
        if self.rank == 0:
            log.close()
            print('训练完成，最佳 mIoU %.4f' % self.best_miou)
        dist.destroy_process_group()


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--batch-size', type=int, default=8)
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--lr', type=float, default=0.02)
    parser.add_argument('--seed', type=int, default=0)
    Trainer(parser.parse_args()).fit()
