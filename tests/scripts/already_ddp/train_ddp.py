import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument('--local_rank', default=int(os.environ.get('LOCAL_RANK', 0)), type=int)
parser.add_argument('--epochs', default=20, type=int)
parser.add_argument('--batch_size', default=16, type=int)
parser.add_argument('--save', default='snapshots')
args = parser.parse_args()

args.distributed = int(os.environ.get('WORLD_SIZE', 1)) > 1
args.world_size = 1
if args.distributed:
    if torch.cuda.is_available():
        torch.cuda.set_device(args.local_rank)
    dist.init_process_group(backend='nccl' if torch.cuda.is_available() else 'gloo', init_method='env://')
    args.world_size = dist.get_world_size()
device = torch.device('cuda', args.local_rank) if torch.cuda.is_available() else torch.device('cpu')


def reduce_tensor(t):
    if not args.distributed:
        return t
    rt = t.clone()
    dist.all_reduce(rt, op=dist.ReduceOp.SUM)
    return rt / args.world_size


def log(msg):
    if args.local_rank == 0:
        print(msg)


torch.manual_seed(0)
x, y = load_wine(return_X_y=True)
data = TensorDataset(torch.tensor(scale(x), dtype=torch.float32), torch.tensor(y))
gen = torch.Generator().manual_seed(3)
train_set, val_set = torch.utils.data.random_split(data, [140, 38], generator=gen)
train_sampler = DistributedSampler(train_set) if args.distributed else None
val_sampler = DistributedSampler(val_set) if args.distributed else None
train_loader = DataLoader(train_set, args.batch_size, shuffle=train_sampler is None, sampler=train_sampler)
val_loader = DataLoader(val_set, args.batch_size, sampler=val_sampler)

model = nn.Sequential(nn.Linear(13, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 3)).to(device)
if args.distributed:
    model = DistributedDataParallel(model, device_ids=[args.local_rank] if device.type == 'cuda' else None)
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.02 * args.world_size, momentum=0.9)

best = 0.
for epoch in range(args.epochs):
    if train_sampler is not None:
        train_sampler.set_epoch(epoch)
    model.train()
    for images, target in train_loader:
        images, target = images.to(device), target.to(device)
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    model.eval()
    acc, n = torch.zeros(1, device=device), 0
    with torch.no_grad():
        for images, target in val_loader:
            images, target = images.to(device), target.to(device)
            acc += (model(images).argmax(1) == target).float().mean()
            n += 1
    acc = reduce_tensor(acc / n).item()
    log('epoch %d loss %.4f val acc %.4f' % (epoch, reduce_tensor(loss.detach()).item(), acc))
    if acc > best and args.local_rank == 0:
        best = acc
        if not os.path.exists(args.save):
            os.makedirs(args.save)
        state = model.module.state_dict() if hasattr(model, 'module') else model.state_dict()
        torch.save(state, os.path.join(args.save, 'best.pth'))
    if args.distributed:
        dist.barrier()

if args.distributed:
    dist.destroy_process_group()
