"""SGD with a running average of the weights from epoch --swa_start on."""
import argparse
import os
import sys
import time

import torch
import torch.nn.functional as F

import loaders
import swa_utils
from nets import make_net


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument('--dir', required=True)
    p.add_argument('--batch_size', type=int, default=48)
    p.add_argument('--model', default='ConvSmall')
    p.add_argument('--resume', default=None)
    p.add_argument('--epochs', type=int, default=200)
    p.add_argument('--save_freq', type=int, default=25)
    p.add_argument('--eval_freq', type=int, default=5)
    p.add_argument('--lr', type=float, default=0.1)
    p.add_argument('--wd', type=float, default=1e-4)
    p.add_argument('--swa', action='store_true')
    p.add_argument('--swa_start', type=int, default=160)
    p.add_argument('--swa_lr', type=float, default=0.05)
    p.add_argument('--seed', type=int, default=1)
    return p.parse_args()


def lr_at(epoch, args):
    """flat, linear down to swa_lr, flat"""
    end = args.swa_start if args.swa else args.epochs
    low = args.swa_lr if args.swa else args.lr * 0.01
    t = min(max((epoch / end - 0.5) / 0.4, 0.0), 1.0)
    return args.lr + t * (low - args.lr)


class Table:
    def __init__(self, *names):
        self.names = names
        self.rows = 0

    def add(self, **values):
        if self.rows % 40 == 0:
            print(' | '.join('%8s' % n for n in self.names))
        self.rows += 1
        print(' | '.join('%8s' % ('-' if values.get(n) is None else '%.4f' % values[n]) for n in self.names))


args = get_args()
os.makedirs(args.dir, exist_ok=True)
with open(os.path.join(args.dir, 'command.sh'), 'w') as f:
    f.write(' '.join(['python'] + sys.argv) + '\n')

torch.manual_seed(args.seed)
torch.cuda.manual_seed(args.seed)
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

data, num_classes = loaders.get(args.batch_size)
model = make_net(args.model, num_classes).to(device)
swa_model, swa_n = None, 0
if args.swa:
    swa_model = make_net(args.model, num_classes).to(device)
criterion = F.cross_entropy
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=args.wd)

first = 0
if args.resume is not None:
    state = torch.load(args.resume)
    first = state['epoch']
    model.load_state_dict(state['model'])
    optimizer.load_state_dict(state['optimizer'])
    if args.swa and state['swa_n'] > 0:
        swa_model.load_state_dict(state['swa_model'])
        swa_n = state['swa_n']

table = Table('epoch', 'lr', 'tr_loss', 'tr_acc', 'te_loss', 'te_acc', 'swa_loss', 'swa_acc', 'seconds')
for epoch in range(first, args.epochs):
    start = time.time()
    lr = swa_utils.adjust_learning_rate(optimizer, lr_at(epoch, args))
    tr = swa_utils.train_epoch(data['train'], model, criterion, optimizer, device)

    look = (epoch + 1) % args.eval_freq == 0 or epoch in (0, args.epochs - 1)
    te, sw = {}, {}
    if look:
        te = swa_utils.evaluate(data['test'], model, criterion, device)
    if args.swa and epoch + 1 >= args.swa_start:
        swa_utils.moving_average(swa_model, model, 1.0 / (swa_n + 1))
        swa_n += 1
        if look:
            swa_utils.bn_update(data['train'], swa_model, device)
            sw = swa_utils.evaluate(data['test'], swa_model, criterion, device)

    table.add(epoch=epoch + 1, lr=lr, tr_loss=tr['loss'], tr_acc=tr['accuracy'], te_loss=te.get('loss'),
              te_acc=te.get('accuracy'), swa_loss=sw.get('loss'), swa_acc=sw.get('accuracy'),
              seconds=time.time() - start)

    if (epoch + 1) % args.save_freq == 0 or epoch + 1 == args.epochs:
        torch.save({'epoch': epoch + 1, 'model': model.state_dict(), 'optimizer': optimizer.state_dict(),
                    'swa_model': swa_model.state_dict() if args.swa else None, 'swa_n': swa_n},
                   os.path.join(args.dir, 'checkpoint-%d.pt' % (epoch + 1)))
