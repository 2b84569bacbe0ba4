import argparse
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

from losses import BatchHardTriplet, pdist
from samplers import PKSampler

parser = argparse.ArgumentParser()
parser.add_argument('--lr', default=1e-3, type=float)
parser.add_argument('--epoch', default=20, type=int)
parser.add_argument('--classes-per-batch', default=8, type=int)
parser.add_argument('--samples-per-class', default=4, type=int)
parser.add_argument('--iter-per-epoch', default=30, type=int)
parser.add_argument('--embedding-size', default=16, type=int)
parser.add_argument('--margin', default=0.3, type=float)
parser.add_argument('--lr-decay-epochs', type=int, default=[15, 18], nargs='+')
parser.add_argument('--save-dir', default='saved')
opts = parser.parse_args()

# classes 0-6 to learn from, 7-9 never seen before
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
labels = torch.tensor(digits.target)
seen = labels < 7
dataset_train = TensorDataset(images[seen], labels[seen])
dataset_eval = TensorDataset(images[~seen], labels[~seen])

loader_train = DataLoader(dataset_train, batch_sampler=PKSampler(
    labels[seen].numpy(), opts.classes_per_batch, opts.samples_per_class, opts.iter_per_epoch))
loader_eval = DataLoader(dataset_eval, shuffle=False, batch_size=50, drop_last=False)


class Embedder(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2))
        self.fc = nn.Linear(32 * 9, size)

    def forward(self, x):
        return F.normalize(self.fc(self.conv(x).flatten(1)), dim=1)


device = 'cuda' if torch.cuda.is_available() else 'cpu'
model = Embedder(opts.embedding_size).to(device)
criterion = BatchHardTriplet(opts.margin)
optimizer = optim.Adam(model.parameters(), lr=opts.lr, weight_decay=1e-5)
lr_scheduler = optim.lr_scheduler.MultiStepLR(optimizer, milestones=opts.lr_decay_epochs, gamma=0.5)


def train(net, loader, ep):
    net.train()
    bar = tqdm(loader, ncols=90)
    loss_all, frac_all = [], []
    for x, y in bar:
        x, y = x.to(device), y.to(device)
        loss, frac = criterion(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_all.append(loss.item())
        frac_all.append(frac.item())
        bar.set_description('[Train][Epoch %d] loss %.4f active %.2f' % (ep, np.mean(loss_all), np.mean(frac_all)))
    print('[Epoch %d] Loss: %.5f' % (ep, torch.Tensor(loss_all).mean()))


def recall(embeddings, labels, K=(1, 4)):
    d = pdist(embeddings, embeddings)
    d.fill_diagonal_(1e9)
    nn_idx = d.topk(max(K), dim=1, largest=False)[1]
    hits = labels[nn_idx] == labels[:, None]
    return [hits[:, :k].any(1).float().mean().item() for k in K]


def evaluate(net, loader, ep):
    net.eval()
    embeddings_all, labels_all = [], []
    with torch.no_grad():
        for x, y in tqdm(loader, ncols=90, desc='[Eval][Epoch %d]' % ep):
            embeddings_all.append(net(x.to(device)).data.cpu())
            labels_all.append(y)
    embeddings_all = torch.cat(embeddings_all)
    labels_all = torch.cat(labels_all)
    rec = recall(embeddings_all, labels_all)
    print('[Epoch %d] Recall@1: %.4f Recall@4: %.4f of %d' % (ep, rec[0], rec[1], len(labels_all)))
    return rec[0], embeddings_all.numpy()


val_recall, emb = evaluate(model, loader_eval, 0)
best_rec = 0
for epoch in range(1, opts.epoch + 1):
    train(model, loader_train, epoch)
    lr_scheduler.step()
    val_recall, emb = evaluate(model, loader_eval, epoch)
    if not os.path.isdir(opts.save_dir):
        os.mkdir(opts.save_dir)
    if best_rec < val_recall:
        best_rec = val_recall
        torch.save(model.state_dict(), '%s/best.pth' % opts.save_dir)
        np.save('%s/embeddings.npy' % opts.save_dir, emb)
    torch.save(model.state_dict(), '%s/last.pth' % opts.save_dir)
    with open('%s/result.txt' % opts.save_dir, 'w') as f:
        f.write('Best Recall@1: %.4f\n' % best_rec)
        f.write('Final Recall@1: %.4f\n' % val_recall)
print('Best Recall@1: %.4f' % best_rec)
