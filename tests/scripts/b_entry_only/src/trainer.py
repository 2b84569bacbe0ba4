# -*- coding: utf-8 -*-
import os
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from conf.config import DataConfig, TrainConfig as C
from .data import BearingDataset
from .net import WDCNN

train_data = BearingDataset(train=True)
test_data = BearingDataset(train=False)
train_loader = DataLoader(train_data, C.batch_size, shuffle=True)
test_loader = DataLoader(test_data, C.test_batch_size, shuffle=False)
model = WDCNN(len(DataConfig.class_names)).to(C.device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), C.lr)


def train_one_epoch(epoch):
    model.train()
    loss_list, right = [], 0
    for x, y in train_loader:
        x, y = x.to(C.device), y.to(C.device)
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_list.append(loss.item())
        right += (torch.max(out, 1)[1] == y).sum().item()
    return sum(loss_list) / len(loss_list), right / len(train_data)


def test(net):
    net.eval()
    n = len(DataConfig.class_names)
    cm = np.zeros((n, n), dtype=np.int64)      # 混淆矩阵
    loss_sum = 0
    with torch.no_grad():
        for x, y in test_loader:
            x, y = x.to(C.device), y.to(C.device)
            out = net(x)
            loss_sum += criterion(out, y).item()
            pred = out.argmax(1)
            for t, p in zip(y.cpu().numpy(), pred.cpu().numpy()):
                cm[t][p] += 1
    acc = np.diag(cm).sum() / cm.sum()
    return loss_sum / len(test_loader), acc, cm


def run():
    print('训练样本数:%d  测试样本数:%d  设备:%s' % (len(train_data), len(test_data), C.device))
    if not os.path.exists(C.model_dir):
        os.makedirs(C.model_dir)
    best_acc = 0
    best_file = os.path.join(C.model_dir, 'best.pkl')
    for epoch in range(C.epochs):
        begin = time.time()
        train_loss, train_acc = train_one_epoch(epoch)
        test_loss, test_acc, cm = test(model)
        print('第%d轮 训练损失:%.4f 训练准确率:%.4f 测试损失:%.4f 测试准确率:%.4f 用时:%.1fs' % (
            epoch + 1, train_loss, train_acc, test_loss, test_acc, time.time() - begin))
        if test_acc > best_acc:
            best_acc = test_acc
            torch.save(model, best_file)
            print('保存最优模型')

    best_model = torch.load(best_file, weights_only=False)
    _, acc, cm = test(best_model)
    print('最优模型准确率: %.4f' % acc)
    print('混淆矩阵:\n', cm)
    for i, name in enumerate(DataConfig.class_names):
        print('%s: 召回率 %.3f 精确率 %.3f' % (name, cm[i, i] / cm[i].sum(), cm[i, i] / max(cm[:, i].sum(), 1)))
    np.savetxt(os.path.join(C.model_dir, 'cm.txt'), cm, fmt='%d')
