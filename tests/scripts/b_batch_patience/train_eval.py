# coding: UTF-8
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn import metrics

from utils import elapsed


def init_network(model, exclude='embedding'):
    for name, w in model.named_parameters():
        if exclude in name:
            continue
        if 'weight' in name:
            nn.init.xavier_normal_(w)
        elif 'bias' in name:
            nn.init.constant_(w, 0)


def train(config, model, train_iter, dev_iter, test_iter):
    start_time = time.time()
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    total_batch = 0                 # 已经跑了多少个batch
    dev_best_loss = float('inf')
    last_improve = 0                # 上次验证集loss下降时的batch数
    flag = False
    for epoch in range(config.num_epochs):
        print('第 [{}/{}] 轮'.format(epoch + 1, config.num_epochs))
        for trains, labels in train_iter:
            outputs = model(trains)
            model.zero_grad()
            loss = F.cross_entropy(outputs, labels)
            loss.backward()
            optimizer.step()
            if total_batch % 10 == 0:
                true = labels.data.cpu()
                predic = torch.max(outputs.data, 1)[1].cpu()
                train_acc = metrics.accuracy_score(true, predic)
                dev_acc, dev_loss = evaluate(config, model, dev_iter)
                improve = ''
                if dev_loss < dev_best_loss:
                    dev_best_loss = dev_loss
                    torch.save(model.state_dict(), config.save_path)
                    improve = '*'
                    last_improve = total_batch
                print('batch {:>5}  train loss {:>6.3f} acc {:>6.2%}  dev loss {:>6.3f} acc {:>6.2%}  {} {}'.format(
                    total_batch, loss.item(), train_acc, dev_loss, dev_acc, elapsed(start_time), improve))
                model.train()
            total_batch += 1
            if total_batch - last_improve > config.require_improvement:
                print("验证集很久没有提升了, 提前结束")
                flag = True
                break
        if flag:
            break
    test(config, model, test_iter)


def test(config, model, test_iter):
    model.load_state_dict(torch.load(config.save_path))
    model.eval()
    test_acc, test_loss, report, confusion = evaluate(config, model, test_iter, test=True)
    print('测试集 loss {:.3f}  acc {:.2%}'.format(test_loss, test_acc))
    print(report)
    print(confusion)


def evaluate(config, model, data_iter, test=False):
    model.eval()
    loss_total = 0
    predict_all = np.array([], dtype=int)
    labels_all = np.array([], dtype=int)
    with torch.no_grad():
        for texts, labels in data_iter:
            outputs = model(texts)
            loss_total += F.cross_entropy(outputs, labels).item()
            labels_all = np.append(labels_all, labels.data.cpu().numpy())
            predict_all = np.append(predict_all, torch.max(outputs.data, 1)[1].cpu().numpy())
    acc = metrics.accuracy_score(labels_all, predict_all)
    if test:
        report = metrics.classification_report(labels_all, predict_all, target_names=config.class_list, digits=4)
        confusion = metrics.confusion_matrix(labels_all, predict_all)
        return acc, loss_total / len(data_iter), report, confusion
    return acc, loss_total / len(data_iter)
