# -*- coding: utf-8 -*-
# 作者：小白
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from tensorboard_lite import SummaryWriter
# 准备数据集
import dataset
from model import *
import time


def to_tensor(img):
    img = np.array(img, dtype=np.float32) / 255
    return torch.from_numpy(img.transpose(2, 0, 1).copy())

# 定义训练的设备
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

train_data = dataset.CIFAR10(root="./data", train=True, transform=to_tensor, download=True)
test_data = dataset.CIFAR10(root="./data", train=False, transform=to_tensor, download=True)

train_data_size = len(train_data)
test_data_size = len(test_data)
print("训练集有%d张图，测试集有%d张图" % (train_data_size, test_data_size))

# 一批一批地取，老师说 batch_size 一般是2的幂
train_dataloader = DataLoader(train_data, batch_size=32)
test_dataloader = DataLoader(test_data, batch_size=32)

# 创建网络模型
mynet = MyNet()
mynet = mynet.to(device)

# 损失函数
loss_fn = nn.CrossEntropyLoss()
loss_fn = loss_fn.to(device)

# 优化器
# 0.1 会变成 nan，0.01 太慢
learning_rate = 5e-2
optimizer = torch.optim.SGD(mynet.parameters(), lr=learning_rate)

# 记录训练的次数
total_train_step = 0
# 记录测试的次数
total_test_step = 0
# 训练的轮数
epoch = 4

# 画曲线用
writer = SummaryWriter("logs_train")

start_time = time.time()
for i in range(epoch):
    print("=====第{}轮=====".format(i + 1))

    # 训练步骤开始
    mynet.train()
    for data in train_dataloader:
        imgs, targets = data
        imgs = imgs.to(device)
        targets = targets.to(device)
        outputs = mynet(imgs)
        loss = loss_fn(outputs, targets)

        # 三步：清零、反向、更新，顺序不能错
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        total_train_step = total_train_step + 1
        if total_train_step % 10 == 0:
            end_time = time.time()
            print("用时 {:.2f} 秒".format(end_time - start_time))
            print("第{}步 loss={}".format(total_train_step, loss.item()))
            writer.add_scalar("train_loss", loss.item(), total_train_step)

    # 测试步骤开始
    mynet.eval()
    total_test_loss = 0
    total_accuracy = 0
    with torch.no_grad():
        for data in test_dataloader:
            imgs, targets = data
            imgs = imgs.to(device)
            targets = targets.to(device)
            outputs = mynet(imgs)
            loss = loss_fn(outputs, targets)
            total_test_loss = total_test_loss + loss.item()
            accuracy = (outputs.argmax(1) == targets).sum()
            total_accuracy = total_accuracy + accuracy

    print("测试集 loss={} 正确率={}".format(total_test_loss, total_accuracy / test_data_size))
    writer.add_scalar("test_loss", total_test_loss, total_test_step)
    writer.add_scalar("test_accuracy", total_accuracy / test_data_size, total_test_step)
    total_test_step = total_test_step + 1

    torch.save(mynet, "mynet_{}.pth".format(i))
    # torch.save(mynet.state_dict(), "mynet_{}.pth".format(i))
    print("保存好了")

writer.close()
