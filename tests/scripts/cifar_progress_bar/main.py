'''Classify little pictures.   python main.py [--lr 0.1] [-r]'''
import os
import argparse
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
import torch.nn.functional as F
import torch.backends.cudnn as cudnn

import datasets
import transforms
from models import *
from utils import progress_bar, init_params

parser = argparse.ArgumentParser(description='small pictures, ten classes')
parser.add_argument('--lr', default=0.1, type=float)
parser.add_argument('--net', default='VGG', choices=['VGG', 'PreAct'])
parser.add_argument('-r', '--resume', action='store_true', help='go on from the last checkpoint')
args = parser.parse_args()

device = 'cuda' if torch.cuda.is_available() else 'cpu'
best_acc = 0
start_epoch = 0

# ---- data
print('==> data')
mean, std = (0.49, 0.48, 0.45), (0.20, 0.20, 0.20)
transform_train = transforms.Compose([
    transforms.RandomCrop(32, padding=4),
    transforms.RandomHorizontalFlip(),
    transforms.ToTensor(),
    transforms.Normalize(mean, std),
])
transform_test = transforms.Compose([transforms.ToTensor(), transforms.Normalize(mean, std)])

trainset = datasets.CIFAR10(root='./data', train=True, download=True, transform=transform_train)
trainloader = torch.utils.data.DataLoader(trainset, batch_size=32, shuffle=True, num_workers=2)
testset = datasets.CIFAR10(root='./data', train=False, download=True, transform=transform_test)
testloader = torch.utils.data.DataLoader(testset, batch_size=30, shuffle=False, num_workers=2)

# ---- model
print('==> model', args.net)
if args.net == 'VGG':
    net = VGG('VGG5')
else:
    net = PreActNet6()
init_params(net)
net = net.to(device)
if device == 'cuda':
    net = torch.nn.DataParallel(net)
    cudnn.benchmark = True

if args.resume:
    print('==> resume')
    assert os.path.isdir('checkpoint'), 'nothing to resume from'
    saved = torch.load('./checkpoint/last.pth')
    net.load_state_dict(saved['net'])
    best_acc = saved['acc']
    start_epoch = saved['epoch'] + 1

criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)


def train(epoch):
    print('\nEpoch %d' % epoch)
    net.train()
    train_loss = 0
    correct = 0
    total = 0
    for i, (inputs, targets) in enumerate(trainloader):
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()

        train_loss += loss.item()
        _, predicted = outputs.max(1)
        total += targets.size(0)
        correct += predicted.eq(targets).sum().item()
        progress_bar(i, len(trainloader), 'loss %.3f acc %.2f%%' % (train_loss / (i + 1), 100. * correct / total))


def test(epoch):
    global best_acc
    net.eval()
    test_loss = 0
    correct = 0
    total = 0
    with torch.no_grad():
        for i, (inputs, targets) in enumerate(testloader):
            inputs, targets = inputs.to(device), targets.to(device)
            outputs = net(inputs)
            loss = criterion(outputs, targets)

            test_loss += loss.item()
            _, predicted = outputs.max(1)
            total += targets.size(0)
            correct += predicted.eq(targets).sum().item()
            progress_bar(i, len(testloader), 'loss %.3f acc %.2f%%' % (test_loss / (i + 1), 100. * correct / total))

    # keep it if it is the best so far
    acc = 100. * correct / total
    if acc > best_acc:
        print('  %.2f%% > %.2f%%, saving' % (acc, best_acc))
        if not os.path.isdir('checkpoint'):
            os.mkdir('checkpoint')
        torch.save({'net': net.state_dict(), 'acc': acc, 'epoch': epoch}, './checkpoint/last.pth')
        best_acc = acc


for epoch in range(start_epoch, start_epoch + 3):
    train(epoch)
    test(epoch)
    scheduler.step()
