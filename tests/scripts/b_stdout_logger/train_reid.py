from __future__ import print_function, absolute_import

import argparse
import datetime
import os
import os.path as osp
import sys
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

from reid_utils import Logger, AverageMeter, CenterLoss, Converged, mkdir_if_missing

parser = argparse.ArgumentParser()
parser.add_argument('--gpu', type=str, default='0')
parser.add_argument('--use-cpu', action='store_true')
parser.add_argument('--batch', type=int, default=36)
parser.add_argument('--lr-model', type=float, default=0.02)
parser.add_argument('--lr-cent', type=float, default=0.3)
parser.add_argument('--weight-cent', type=float, default=0.02)
parser.add_argument('--max-epoch', type=int, default=60)
parser.add_argument('--stepsize', type=int, default=6)
parser.add_argument('--stop-acc', type=float, default=0.93)
parser.add_argument('--load', type=str, default='')
parser.add_argument('--save-dir', type=str, default='log')
args = parser.parse_args()


def people(n, seed, n_id=12, dim=20):
    """made-up appearance vectors of n_id persons seen by two cameras"""
    g = np.random.RandomState(77)
    centres = g.randn(n_id, dim) * 1.1
    cams = g.randn(2, dim) * 0.6
    r = np.random.RandomState(seed)
    pid = r.randint(0, n_id, n)
    cam = r.randint(0, 2, n)
    x = centres[pid] + cams[cam] + r.randn(n, dim) * 0.9
    if seed == 1:
        # a broken camera frame now and then
        x[r.choice(n, 3, replace=False)] = np.inf
    return TensorDataset(torch.tensor(x).float(), torch.tensor(pid).long(), torch.tensor(cam))


class Net(nn.Module):
    def __init__(self, dim, feat, n_id):
        super(Net, self).__init__()
        self.n_id = n_id
        self.fc1 = nn.Linear(dim, 64)
        self.fc2 = nn.Linear(64, feat)
        self.bottleneck = nn.LayerNorm(feat)
        self.classifier = nn.Linear(feat, n_id, bias=False)

    def forward(self, x):
        f = self.fc2(torch.relu(self.fc1(x)))
        if not self.training:
            return f
        return f, self.classifier(self.bottleneck(f))


def main():
    os.environ['CUDA_VISIBLE_DEVICES'] = args.gpu
    use_gpu = torch.cuda.is_available()
    if args.use_cpu:
        use_gpu = False
    if args.stepsize <= 0:
        print('stepsize must be positive')
        sys.exit(2)

    stamp = datetime.datetime.now().strftime('%Y-%m-%d-%H-%M-%S')
    save_dir = osp.join(args.save_dir, stamp)
    mkdir_if_missing(save_dir)
    sys.stdout = Logger(osp.join(save_dir, 'log_train.txt'))
    print('==========\nArgs:{}\n=========='.format(args))
    print('Currently using GPU {}'.format(args.gpu) if use_gpu else 'Currently using CPU')

    trainloader = DataLoader(people(720, 1), batch_size=args.batch, shuffle=True, pin_memory=use_gpu)
    queryloader = DataLoader(people(90, 2), batch_size=args.batch, shuffle=False)
    galleryloader = DataLoader(people(250, 3), batch_size=args.batch, shuffle=False)

    model = Net(20, 16, 12)
    criterion_xent = nn.CrossEntropyLoss()
    criterion_cent = CenterLoss(12, 16)
    if use_gpu:
        model = nn.DataParallel(model).cuda()
        criterion_cent = criterion_cent.cuda()
    if args.load:
        model.load_state_dict(torch.load(args.load)['net'], strict=False)
    optimizer_model = torch.optim.SGD(model.parameters(), lr=args.lr_model, weight_decay=5e-04, momentum=0.9)
    optimizer_cent = torch.optim.SGD(criterion_cent.parameters(), lr=args.lr_cent)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer_model, args.stepsize, 0.5)

    start_time = time.time()
    rank1 = 0
    try:
        for epoch in range(args.max_epoch):
            print('==> Epoch {}/{}'.format(epoch + 1, args.max_epoch))
            train(model, criterion_xent, criterion_cent, optimizer_model, optimizer_cent, trainloader, use_gpu)
            scheduler.step()
            rank1, mAP = test(model, queryloader, galleryloader, use_gpu)
            print('Rank-1 {:.1%}  mAP {:.1%}'.format(rank1, mAP))
            if rank1 > args.stop_acc:
                raise Converged('rank-1 of {:.3f} is enough'.format(rank1))
    except Converged as e:
        print('stopped:', e)

    net = model.module if use_gpu else model
    torch.save({'net': net.state_dict(), 'cent': criterion_cent, 'rank1': rank1, 'epoch': epoch + 1},
               osp.join(save_dir, 'checkpoint_ep' + str(epoch + 1) + '.pth.tar'))
    print('Finished. Total elapsed time (h:m:s): {}'.format(datetime.timedelta(seconds=round(time.time() - start_time))))


def train(model, criterion_xent, criterion_cent, optimizer_model, optimizer_cent, trainloader, use_gpu):
    model.train()
    xent_losses, cent_losses, losses = AverageMeter(), AverageMeter(), AverageMeter()
    skipped = 0
    for batch_idx, (data, labels, _) in enumerate(trainloader):
        if use_gpu:
            data, labels = data.cuda(), labels.cuda()
        features, outputs = model(data)
        loss_xent = criterion_xent(outputs, labels)
        loss_cent = criterion_cent(features, labels) * args.weight_cent
        loss = loss_xent + loss_cent
        if torch.isnan(loss):
            skipped += 1
            continue
        optimizer_model.zero_grad()
        optimizer_cent.zero_grad()
        loss.backward()
        optimizer_model.step()
        # by doing so, weight_cent would not impact on the learning of centers
        for param in criterion_cent.parameters():
            param.grad.data *= (1. / args.weight_cent)
        optimizer_cent.step()
        losses.update(loss.item(), labels.size(0))
        xent_losses.update(loss_xent.item(), labels.size(0))
        cent_losses.update(loss_cent.item(), labels.size(0))
        if (batch_idx + 1) % 10 == 0:
            print('Batch {}/{}\t Loss {:.4f} ({:.4f}) Xent {:.4f} Center {:.4f}'.format(
                batch_idx + 1, len(trainloader), losses.val, losses.avg, xent_losses.avg, cent_losses.avg))
    if skipped:
        print('%d batches skipped (NaN)' % skipped)


def extract(model, loader, use_gpu):
    feats, pids, camids = [], [], []
    with torch.no_grad():
        for x, pid, cam in loader:
            f = model(x.cuda() if use_gpu else x)
            feats.append(f.data.cpu())
            pids.extend(pid.tolist())
            camids.extend(cam.tolist())
    return torch.cat(feats, 0), np.asarray(pids), np.asarray(camids)


def test(model, queryloader, galleryloader, use_gpu):
    model.eval()
    qf, q_pids, q_cams = extract(model, queryloader, use_gpu)
    gf, g_pids, g_cams = extract(model, galleryloader, use_gpu)
    dist = torch.cdist(qf, gf).numpy()
    aps, first = [], 0
    for i in range(len(q_pids)):
        order = np.argsort(dist[i])
        # same person seen by the same camera does not count
        keep = ~((g_pids[order] == q_pids[i]) & (g_cams[order] == q_cams[i]))
        match = (g_pids[order] == q_pids[i])[keep]
        if not match.any():
            continue
        first += match[0]
        pos = np.where(match)[0]
        aps.append(np.mean((np.arange(len(pos)) + 1) / (pos + 1)))
    return first / len(aps), np.mean(aps)


if __name__ == '__main__':
    main()
