import os
import time
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
import torch.utils.data as data
import torch.backends.cudnn as cudnn

import config
import data_utils
import model
import evaluate
from tb import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--batch_size", type=int, default=128)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--top_k", type=int, default=10)
parser.add_argument("--factor_num", type=int, default=8)
parser.add_argument("--num_layers", type=int, default=2)
parser.add_argument("--num_ng", type=int, default=3, help="negatives for each positive in training")
parser.add_argument("--test_num_ng", type=int, default=49, help="negatives for each test item")
parser.add_argument("--out", action="store_true", help="save model or not")
parser.add_argument("--gpu", type=str, default="0")
args = parser.parse_args()

os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu
cudnn.benchmark = True

# ------------------------------------------------------- data
train_pairs, test_rows, user_num, item_num, train_mat = data_utils.load_all(args.test_num_ng)
train_dataset = data_utils.PairData(train_pairs, item_num, train_mat, args.num_ng, True)
test_dataset = data_utils.PairData(test_rows, item_num, train_mat, 0, False)
train_loader = data.DataLoader(train_dataset, batch_size=args.batch_size, shuffle=True, num_workers=0)
# one batch = one user: the true item first, then its negatives
test_loader = data.DataLoader(test_dataset, batch_size=args.test_num_ng + 1, shuffle=False, num_workers=0)

# ------------------------------------------------------- model
net = model.NeuMF(user_num, item_num, args.factor_num, args.num_layers, args.dropout, config.model)
if torch.cuda.is_available():
    net.cuda()
loss_function = nn.BCEWithLogitsLoss()
optimizer = optim.Adam(net.parameters(), lr=args.lr)
writer = SummaryWriter()

# ------------------------------------------------------- training
use_gpu = torch.cuda.is_available()
step = 0
best = dict(hr=0, ndcg=0, epoch=-1)
for epoch in range(args.epochs):
    t0 = time.time()
    net.train()
    train_loader.dataset.ng_sample()    # fresh negatives
    for user, item, label in train_loader:
        label = label.float()
        if use_gpu:
            user, item, label = user.cuda(), item.cuda(), label.cuda()
        loss = loss_function(net(user, item), label)
        net.zero_grad()
        loss.backward()
        optimizer.step()
        writer.add_scalar('train/loss', loss.item(), step)
        step += 1

    net.eval()
    hr, ndcg = evaluate.metrics(net, test_loader, args.top_k)
    print("%2d  loss %.4f  HR@%d %.4f  NDCG %.4f  (%.1fs)" % (epoch, loss.item(), args.top_k, hr, ndcg, time.time() - t0))
    if hr <= best['hr']:
        continue
    best.update(hr=hr, ndcg=ndcg, epoch=epoch)
    if args.out:
        if not os.path.exists(config.model_path):
            os.mkdir(config.model_path)
        torch.save(net, config.model_path + config.model + '.pth')

print("best:", best)
