import argparse
import glob
import os
import re
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

from nets import SeqCounter


class Counting(Dataset):
    """how many times does the first symbol come again in the sequence?"""

    def __init__(self, n, length=14, vocab=8, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randint(0, vocab, (n, length), generator=g)
        self.y = (self.x[:, 1:] == self.x[:, :1]).sum(1).clamp(max=4)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def forever(loader):
    epoch = 0
    while True:
        for batch in loader:
            yield epoch, batch
        epoch += 1


def newest(folder):
    files = glob.glob(os.path.join(folder, 'step_*.pt'))
    if not files:
        return None
    return max(files, key=lambda f: int(re.findall(r'step_(\d+)', f)[0]))


def save(folder, step, model, optimizer, keep):
    torch.save({'step': step, 'model': model.state_dict(), 'optimizer': optimizer.state_dict()},
               os.path.join(folder, f'step_{step}.pt'))
    files = sorted(glob.glob(os.path.join(folder, 'step_*.pt')), key=os.path.getmtime)
    for f in files[:-keep]:
        os.remove(f)


@torch.no_grad()
def estimate(model, loader, criterion, n_batches, device):
    model.eval()
    it = iter(loader)
    loss_sum, right, seen = 0., 0, 0
    for _ in range(n_batches):
        try:
            x, y = next(it)
        except StopIteration:
            break
        x, y = x.to(device), y.to(device)
        out = model(x)
        loss_sum += criterion(out, y).item() * len(y)
        right += (out.argmax(-1) == y).sum().item()
        seen += len(y)
    model.train()
    return loss_sum / seen, right / seen


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--max-steps', type=int, default=1000)
    p.add_argument('--batch', type=int, default=50)
    p.add_argument('--lr', type=float, default=0.01)
    p.add_argument('--power', type=float, default=0.9)
    p.add_argument('--eval-every', type=int, default=50)
    p.add_argument('--save-every', type=int, default=25)
    p.add_argument('--keep', type=int, default=2)
    p.add_argument('--minutes', type=float, default=10, help='stop after that long, whatever happens')
    p.add_argument('--folder', default='steps')
    a = p.parse_args()

    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device('cpu')
    train_set, val_set = Counting(900, seed=1), Counting(217, seed=2)
    train_loader = DataLoader(train_set, batch_size=a.batch, sampler=RandomSampler(train_set), drop_last=True)
    val_loader = DataLoader(val_set, batch_size=64)
    model = SeqCounter(vocab=8, n_out=5).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.lr)
    criterion = nn.CrossEntropyLoss()

    step = 0
    if not os.path.isdir(a.folder):
        os.mkdir(a.folder)
    path = newest(a.folder)
    if path:
        state = torch.load(path)
        model.load_state_dict(state['model'])
        optimizer.load_state_dict(state['optimizer'])
        step = state['step']
        print('resumed', path)

    batches = forever(train_loader)
    t0 = time.time()
    window = []
    model.train()
    while step < a.max_steps:
        for group in optimizer.param_groups:
            group['lr'] = a.lr * (1 - step / a.max_steps) ** a.power
        epoch, (x, y) = next(batches)
        x, y = x.to(device), y.to(device)
        loss = criterion(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        window.append(loss.item())
        if len(window) > 20:
            window.pop(0)

        if step % 10 == 0:
            print(f'step {step:5d} (epoch {epoch}) loss {sum(window) / len(window):.4f} {step / (time.time() - t0):.0f} it/s')
        if step % a.eval_every == 0:
            vl, va = estimate(model, val_loader, criterion, 10, device)
            print(f'   >> val loss {vl:.4f} acc {va:.4f}')
        if step % a.save_every == 0:
            save(a.folder, step, model, optimizer, a.keep)
        if time.time() - t0 > a.minutes * 60:
            print('out of time')
            break

    vl, va = estimate(model, val_loader, criterion, len(val_loader), device)
    print(f'final: val loss {vl:.4f} acc {va:.4f}')


if __name__ == '__main__':
    main()
