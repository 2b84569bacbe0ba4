import os
import time
import argparse
import numpy as np

import torch
import torch.nn as nn
import torch.optim as optim
import torch.utils.data as data
import torch.backends.cudnn as cudnn

import model
import evaluate
import data_utils


parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.005)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--batch_size", type=int, default=256)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--top_k", type=int, default=10, help="compute metrics@top_k")
parser.add_argument("--factor_num", type=int, default=8)
parser.add_argument("--num_layers", type=int, default=2)
parser.add_argument("--num_ng", type=int, default=4, help="negatives for each positive")
parser.add_argument("--test_num_ng", type=int, default=99)
parser.add_argument("--model", default='NeuMF', help='MLP, GMF or NeuMF')
parser.add_argument("--out", default=True)
parser.add_argument("--gpu", type=str, default="0", help="gpu card ID")
args = parser.parse_args()

os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu
cudnn.benchmark = True

############################## PREPARE DATASET ##########################
train_data, test_data, user_num, item_num, train_mat = data_utils.load_all(test_num=args.test_num_ng)

train_dataset = data_utils.NCFData(train_data, item_num, train_mat, args.num_ng, True)
test_dataset = data_utils.NCFData(test_data, item_num, train_mat, 0, False)
train_loader = data.DataLoader(train_dataset, batch_size=args.batch_size, shuffle=True, num_workers=0)
# a batch is one user: the item that was kept back, then what was not bought
test_loader = data.DataLoader(test_dataset, batch_size=args.test_num_ng+1, shuffle=False, num_workers=0)

########################### CREATE MODEL #################################
net = model.NCF(user_num, item_num, args.factor_num, args.num_layers, args.dropout, args.model)
if torch.cuda.is_available():
    net.cuda()
loss_function = nn.BCEWithLogitsLoss()
optimizer = optim.Adam(net.parameters(), lr=args.lr)

########################### TRAINING #####################################
count, best_hr = 0, 0
for epoch in range(args.epochs):
    net.train()
    start_time = time.time()
    train_loader.dataset.ng_sample()

    for user, item, label in train_loader:
        label = label.float()
        if torch.cuda.is_available():
            user, item, label = user.cuda(), item.cuda(), label.cuda()

        net.zero_grad()
        prediction = net(user, item)
        loss = loss_function(prediction, label)
        loss.backward()
        optimizer.step()
        # writer.add_scalar('data/loss', loss.item(), count)
        count += 1

    net.eval()
    HR, NDCG = evaluate.metrics(net, test_loader, args.top_k)

    print("epoch {:03d}: {:.1f}s  HR {:.3f}  NDCG {:.3f}".format(epoch, time.time() - start_time, np.mean(HR), np.mean(NDCG)))

    if HR > best_hr:
        best_hr, best_ndcg, best_epoch = HR, NDCG, epoch
        if args.out:
            if not os.path.exists('models'):
                os.mkdir('models')
            torch.save(net, 'models/{}.pth'.format(args.model))

print("best: epoch {:03d} HR = {:.3f}, NDCG = {:.3f} after {} steps".format(best_epoch, best_hr, best_ndcg, count))
