import os
import os.path as osp
import sys
import time
import argparse
import datetime
import numpy as np
import torch
import torch.nn as nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset
from sklearn.datasets import load_digits
import matplotlib
matplotlib.use('Agg')
from matplotlib import pyplot as plt

parser = argparse.ArgumentParser("Centres of classes in the plane")
parser.add_argument('--batch-size', type=int, default=64)
parser.add_argument('--lr-model', type=float, default=0.05)
parser.add_argument('--lr-cent', type=float, default=0.5)
parser.add_argument('--weight-cent', type=float, default=0.1)
parser.add_argument('--max-epoch', type=int, default=4)
parser.add_argument('--stepsize', type=int, default=2)
parser.add_argument('--gamma', type=float, default=0.5)
parser.add_argument('--eval-freq', type=int, default=2)
parser.add_argument('--print-freq', type=int, default=8)
parser.add_argument('--gpu', type=str, default='0')
parser.add_argument('--seed', type=int, default=1)
parser.add_argument('--use-cpu', action='store_true')
parser.add_argument('--save-dir', type=str, default='log')
parser.add_argument('--plot', action='store_true', default=True)
args = parser.parse_args()


class AverageMeter(object):
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class CenterLoss(nn.Module):
    def __init__(self, num_classes=10, feat_dim=2, use_gpu=True):
        super(CenterLoss, self).__init__()
        self.num_classes = num_classes
        if use_gpu:
            self.centers = nn.Parameter(torch.randn(num_classes, feat_dim).cuda())
        else:
            self.centers = nn.Parameter(torch.randn(num_classes, feat_dim))

    def forward(self, x, labels):
        batch_size = x.size(0)
        distmat = torch.pow(x, 2).sum(dim=1, keepdim=True).expand(batch_size, self.num_classes) + \
            torch.pow(self.centers, 2).sum(dim=1, keepdim=True).expand(self.num_classes, batch_size).t()
        distmat = distmat - 2 * x @ self.centers.t()
        classes = torch.arange(self.num_classes).long()
        if x.is_cuda:
            classes = classes.cuda()
        mask = labels.unsqueeze(1).expand(batch_size, self.num_classes).eq(classes.expand(batch_size, self.num_classes))
        dist = distmat * mask.float()
        return dist.clamp(min=1e-12, max=1e+12).sum() / batch_size


class Net(nn.Module):
    def __init__(self, num_classes):
        super(Net, self).__init__()
        self.body = nn.Sequential(nn.Linear(64, 64), nn.PReLU(), nn.Linear(64, 32), nn.PReLU())
        self.fc1 = nn.Linear(32, 2)
        self.fc2 = nn.Linear(2, num_classes)

    def forward(self, x):
        x = self.fc1(self.body(x))
        return x, self.fc2(x)


def main():
    torch.manual_seed(args.seed)
    os.environ['CUDA_VISIBLE_DEVICES'] = args.gpu
    use_gpu = torch.cuda.is_available()
    if args.use_cpu:
        use_gpu = False
    if not osp.exists(args.save_dir):
        os.makedirs(args.save_dir)
    if use_gpu:
        print("Currently using GPU: {}".format(args.gpu))
        torch.cuda.manual_seed_all(args.seed)
    else:
        print("Currently using CPU")

    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y)
    trainloader = DataLoader(TensorDataset(x[:1280], y[:1280]), batch_size=args.batch_size, shuffle=True, pin_memory=use_gpu)
    testloader = DataLoader(TensorDataset(x[1280:], y[1280:]), batch_size=args.batch_size, shuffle=False, pin_memory=use_gpu)

    model = Net(10)
    if use_gpu:
        model = nn.DataParallel(model).cuda()
    criterion_xent = nn.CrossEntropyLoss()
    criterion_cent = CenterLoss(num_classes=10, feat_dim=2, use_gpu=use_gpu)
    optimizer_model = torch.optim.SGD(model.parameters(), lr=args.lr_model, weight_decay=5e-04, momentum=0.9)
    optimizer_centloss = torch.optim.SGD(criterion_cent.parameters(), lr=args.lr_cent)
    if args.stepsize > 0:
        scheduler = lr_scheduler.StepLR(optimizer_model, step_size=args.stepsize, gamma=args.gamma)

    start_time = time.time()
    for epoch in range(args.max_epoch):
        print("==> Epoch {}/{}".format(epoch + 1, args.max_epoch))
        train(model, criterion_xent, criterion_cent, optimizer_model, optimizer_centloss, trainloader, use_gpu, 10, epoch)
        if args.stepsize > 0:
            scheduler.step()
        if args.eval_freq > 0 and (epoch + 1) % args.eval_freq == 0 or (epoch + 1) == args.max_epoch:
            print("==> Test")
            acc, err = test(model, testloader, use_gpu, 10, epoch)
            print("Accuracy (%): {:.3f}\t Error rate (%): {:.3f}".format(acc, err))
    elapsed = str(datetime.timedelta(seconds=round(time.time() - start_time)))
    sys.stderr.write("Finished. Total elapsed time (h:m:s): {}\n".format(elapsed))


def train(model, criterion_xent, criterion_cent, optimizer_model, optimizer_centloss, trainloader, use_gpu, num_classes, epoch):
    model.train()
    xent_losses = AverageMeter()
    cent_losses = AverageMeter()
    losses = AverageMeter()
    if args.plot:
        all_features, all_labels = [], []
    for batch_idx, (data, labels) in enumerate(trainloader):
        if use_gpu:
            data, labels = data.cuda(), labels.cuda()
        features, outputs = model(data)
        loss_xent = criterion_xent(outputs, labels)
        loss_cent = criterion_cent(features, labels)
        loss_cent *= args.weight_cent
        loss = loss_xent + loss_cent
        optimizer_model.zero_grad()
        optimizer_centloss.zero_grad()
        loss.backward()
        optimizer_model.step()
        # by doing so, weight_cent would not impact on the learning of centers
        for param in criterion_cent.parameters():
            param.grad.data *= (1. / args.weight_cent)
        optimizer_centloss.step()

        losses.update(loss.item(), labels.size(0))
        xent_losses.update(loss_xent.item(), labels.size(0))
        cent_losses.update(loss_cent.item(), labels.size(0))
        if args.plot:
            if use_gpu:
                all_features.append(features.data.cpu().numpy())
                all_labels.append(labels.data.cpu().numpy())
            else:
                all_features.append(features.data.numpy())
                all_labels.append(labels.data.numpy())
        if (batch_idx + 1) % args.print_freq == 0:
            print("Batch {}/{}\t Loss {:.6f} ({:.6f}) XentLoss {:.6f} ({:.6f}) CenterLoss {:.6f} ({:.6f})".format(
                batch_idx + 1, len(trainloader), losses.val, losses.avg, xent_losses.val, xent_losses.avg,
                cent_losses.val, cent_losses.avg))
    print("Epoch loss {:.4f}".format(losses.avg))
    if args.plot:
        all_features = np.concatenate(all_features, 0)
        all_labels = np.concatenate(all_labels, 0)
        plot_features(all_features, all_labels, num_classes, epoch, prefix='train')


def test(model, testloader, use_gpu, num_classes, epoch):
    model.eval()
    correct, total = 0, 0
    if args.plot:
        all_features, all_labels = [], []
    with torch.no_grad():
        for data, labels in testloader:
            if use_gpu:
                data, labels = data.cuda(), labels.cuda()
            features, outputs = model(data)
            predictions = outputs.data.max(1)[1]
            total += labels.size(0)
            correct += (predictions == labels.data).sum()
            if args.plot:
                all_features.append(features.data.cpu().numpy())
                all_labels.append(labels.data.cpu().numpy())
    if args.plot:
        all_features = np.concatenate(all_features, 0)
        all_labels = np.concatenate(all_labels, 0)
        plot_features(all_features, all_labels, num_classes, epoch, prefix='test')
    acc = correct * 100. / total
    err = 100. - acc
    return acc, err


def plot_features(features, labels, num_classes, epoch, prefix):
    colors = ['C0', 'C1', 'C2', 'C3', 'C4', 'C5', 'C6', 'C7', 'C8', 'C9']
    for label_idx in range(num_classes):
        plt.scatter(features[labels == label_idx, 0], features[labels == label_idx, 1], c=colors[label_idx], s=1)
    plt.legend(['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'], loc='upper right')
    dirname = osp.join(args.save_dir, prefix)
    if not osp.exists(dirname):
        os.mkdir(dirname)
    plt.savefig(osp.join(dirname, 'epoch_' + str(epoch + 1) + '.png'), bbox_inches='tight')
    plt.close()


if __name__ == '__main__':
    main()
