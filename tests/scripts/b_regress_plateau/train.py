# -*- coding: utf-8 -*-
"""
指针式仪表读数回归
输入: 24x24 灰度图  输出: 指针角度 (0-1)
"""
import csv
import os
import math

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import Dataset, DataLoader
import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt

# 参数
batch_size = 32
lr = 0.003
num_epochs = 9
img_size = 24
save_path = './weights/'
DEVICE = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')


class MeterDataset(Dataset):
    def __init__(self, root, train=True):
        self.train = train
        self.data = np.load(os.path.join(root, 'meter.npz'))
        n = len(self.data['y'])
        idx = np.arange(n)
        np.random.seed(0)
        np.random.shuffle(idx)
        k = int(n * 0.8)
        self.idx = idx[:k] if train else idx[k:]
        self.x = self.data['x']
        self.y = self.data['y']

    def __getitem__(self, i):
        img = self.x[self.idx[i]].astype(np.float32) / 255.
        if self.train:
            # 随机亮度
            img = img * np.random.uniform(0.7, 1.2)
        return torch.from_numpy(img.astype(np.float32)).unsqueeze(0), torch.tensor([self.y[self.idx[i]]])

    def __len__(self):
        return len(self.idx)


def generate(root, n=520):
    """画表盘"""
    rng = np.random.RandomState(3)
    xs, ys = [], []
    yy, xx = np.mgrid[:img_size, :img_size]
    c = img_size / 2
    for _ in range(n):
        v = rng.rand()
        a = math.pi * (0.25 + 1.5 * v)
        img = 30 * rng.rand(img_size, img_size)
        img[np.abs(np.hypot(yy - c, xx - c) - 10) < 0.7] = 200
        for r in np.linspace(0, 8, 25):
            img[int(c + r * math.cos(a)), int(c + r * math.sin(a))] = 255
        xs.append(img.astype(np.uint8))
        ys.append(v)
    np.savez(os.path.join(root, 'meter.npz'), x=np.array(xs), y=np.array(ys, dtype=np.float32))


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 12, 5, padding=2), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2))
        self.fc = nn.Sequential(nn.Linear(24 * 6 * 6, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid())

    def forward(self, x):
        x = self.conv(x)
        x = x.view(x.size(0), -1)
        return self.fc(x)


if not os.path.exists('./data'):
    os.makedirs('./data')
if not os.path.exists('./data/meter.npz'):
    print('生成数据...')
    generate('./data')
if not os.path.exists(save_path):
    os.makedirs(save_path)

train_data = MeterDataset('./data', train=True)
val_data = MeterDataset('./data', train=False)
train_loader = DataLoader(train_data, batch_size=batch_size, shuffle=True, num_workers=0)
val_loader = DataLoader(val_data, batch_size=batch_size, shuffle=False, num_workers=0)
print('训练集: {}  验证集: {}'.format(len(train_data), len(val_data)))

net = Net().to(DEVICE)
criterion = nn.L1Loss()
optimizer = optim.Adam(net.parameters(), lr=lr)
scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode='min', factor=0.3, patience=1)

csv_file = open('log.csv', 'w', newline='')
writer = csv.writer(csv_file)
writer.writerow(['epoch', 'train_loss', 'val_loss', 'val_mae_deg', 'lr'])

best = float('inf')
train_curve, val_curve = [], []
for epoch in range(num_epochs):
    net.train()
    sum_loss = 0.0
    for i, (img, target) in enumerate(train_loader):
        img, target = img.to(DEVICE), target.to(DEVICE)
        optimizer.zero_grad()
        pred = net(img)
        loss = criterion(pred, target)
        loss.backward()
        optimizer.step()
        sum_loss += loss.item() * img.size(0)
        print('\r[Epoch %d] [%d/%d] loss:%.4f' % (epoch + 1, i + 1, len(train_loader), loss.item()), end='')
    train_loss = sum_loss / len(train_loader.dataset)

    # 验证
    net.eval()
    val_loss = 0.0
    abs_err = torch.zeros(1)
    with torch.no_grad():
        for img, target in val_loader:
            img, target = img.to(DEVICE), target.to(DEVICE)
            pred = net(img)
            val_loss += criterion(pred, target).item() * img.size(0)
            abs_err += torch.abs(pred - target).sum().cpu() * 270  # 角度
    val_loss /= len(val_loader.dataset)
    mae = abs_err.item() / len(val_data)
    scheduler.step(val_loss)
    cur_lr = optimizer.param_groups[0]['lr']
    print('\n  train %.4f  val %.4f  MAE %.2f度  lr %g' % (train_loss, val_loss, mae, cur_lr))
    writer.writerow([epoch + 1, train_loss, val_loss, mae, cur_lr])
    csv_file.flush()
    train_curve.append(train_loss)
    val_curve.append(val_loss)

    if val_loss < best:
        best = val_loss
        torch.save(net, save_path + 'best.pth')   # 保存整个模型
    torch.save(net, save_path + 'last.pth')
csv_file.close()

plt.figure()
plt.plot(train_curve, label='train')
plt.plot(val_curve, label='val')
plt.legend()
plt.savefig('loss.png')

# 用最好的模型再测一次
net = torch.load(save_path + 'best.pth', weights_only=False)
net.eval()
errs = []
with torch.no_grad():
    for img, target in val_loader:
        pred = net(img.to(DEVICE)).cpu()
        errs.extend((pred - target).abs().view(-1).tolist())
print('最好模型 MAE: %.2f度, 最大误差: %.2f度, 样本数 %d' % (np.mean(errs) * 270, np.max(errs) * 270, len(errs)))
