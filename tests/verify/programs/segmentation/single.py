# -*- coding: utf-8 -*-
# 语义分割：在生成的图形图像上训练一个小型 U-Net
import argparse
import csv
import datetime
import os
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

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


class Trainer:
    def __init__(self, args):
        self.args = args
        self.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        torch.manual_seed(args.seed)
        random.seed(args.seed)
        stamp = datetime.datetime.now().strftime('%Y%m%d-%H%M%S-%f')
        self.save_dir = os.path.join('runs', stamp)
        os.makedirs(self.save_dir)

        ids = list(range(301))
        random.Random(0).shuffle(ids)
        self.train_set = Shapes(ids[:240], train=True)
        self.val_set = Shapes(ids[240:], train=False)
        self.train_loader = DataLoader(self.train_set, args.batch_size, shuffle=True, num_workers=0)
        self.val_loader = DataLoader(self.val_set, 8, shuffle=False)

        self.model = UNet(len(CLASSES)).to(self.device)
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
        return np.mean(losses)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        cm = ConfusionMatrix(self.model.n_classes)
        total_loss, n = 0.0, 0
        for images, masks in self.val_loader:
            images, masks = images.to(self.device), masks.to(self.device)
            logits = self.model(images)
            total_loss += self.criterion(logits, masks).item() * images.size(0)
            n += images.size(0)
            cm.update(masks.cpu().numpy().ravel(), logits.argmax(1).cpu().numpy().ravel())
        return total_loss / n, cm.iou()

    def fit(self):
        log = open(os.path.join(self.save_dir, 'log.csv'), 'w', newline='')
        writer = csv.writer(log)
        writer.writerow(['epoch', 'train_loss', 'val_loss', 'miou'])
        for epoch in range(self.args.epochs):
            train_loss = self.train_one_epoch(epoch)
            val_loss, iou = self.validate()
            miou = iou.mean()
            print('第 %d 轮  训练损失 %.4f  验证损失 %.4f  mIoU %.4f  学习率 %.5f' % (
                epoch, train_loss, val_loss, miou, self.optimizer.param_groups[0]['lr']))
            for name, value in zip(CLASSES, iou):
                print('    %-12s IoU %.4f' % (name, value))
            writer.writerow([epoch, '%.5f' % train_loss, '%.5f' % val_loss, '%.5f' % miou])
            log.flush()
            if miou > self.best_miou:
                self.best_miou = miou
                torch.save({'model': self.model.state_dict(), 'epoch': epoch, 'miou': float(miou)},
                           os.path.join(self.save_dir, 'best.pth'))
        log.close()
        print('训练完成，最佳 mIoU %.4f' % self.best_miou)


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--batch-size', type=int, default=8)
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--lr', type=float, default=0.02)
    parser.add_argument('--seed', type=int, default=0)
    Trainer(parser.parse_args()).fit()
