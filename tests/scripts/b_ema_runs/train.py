import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.optim import SGD, lr_scheduler
from tqdm import tqdm

from core.data import create_dataloader
from core.general import increment_path, strip_optimizer
from core.model import ComputeLoss, SpotNet
from core.torch_utils import EarlyStopping, ModelEMA, de_parallel, select_device

HYP = {'lr0': 0.02, 'lrf': 0.05, 'momentum': 0.9, 'weight_decay': 5e-4, 'warmup_epochs': 1.0,
       'box': 5.0, 'cls': 1.0, 'label_smoothing': 0.05}


@torch.no_grad()
def validate(model, dataloader, compute_loss, device):
    model.eval()
    seen, hits = 0, 0
    loss = torch.zeros(2, device=device)
    stats = []
    for imgs, targets in tqdm(dataloader, desc='val', leave=False):
        imgs, targets = imgs.to(device), targets.to(device)
        out = model(imgs)
        loss += compute_loss(out, targets)[1]
        dist = (out[0] - targets[:, :2]).norm(dim=1)
        ok = (dist < 0.05) & (out[1].argmax(1) == targets[:, 2].long())
        stats.append((ok.cpu(), targets[:, 2].cpu()))
        seen += imgs.shape[0]
    ok, cls = [torch.cat(x, 0).numpy() for x in zip(*stats)]
    per_class = [ok[cls == c].mean() if (cls == c).any() else 0. for c in range(3)]
    return ok.mean(), per_class, (loss.cpu() / len(dataloader)).tolist(), seen


def train(hyp, opt, device):
    save_dir, epochs, batch_size = Path(opt.save_dir), opt.epochs, opt.batch_size
    w = save_dir / 'weights'
    w.mkdir(parents=True, exist_ok=True)
    last, best, results_file = w / 'last.pt', w / 'best.pt', save_dir / 'results.txt'
    with open(save_dir / 'hyp.json', 'w') as f:
        json.dump(hyp, f)
    with open(save_dir / 'opt.json', 'w') as f:
        json.dump(vars(opt), f)
    cuda = device.type != 'cpu'

    model = SpotNet().to(device)
    nbs = 64   # nominal batch size
    accumulate = max(round(nbs / batch_size), 1)
    hyp['weight_decay'] *= batch_size * accumulate / nbs

    g = [], [], []
    bn = tuple(v for k, v in nn.__dict__.items() if 'Norm' in k)
    for v in model.modules():
        if hasattr(v, 'bias') and isinstance(v.bias, nn.Parameter):
            g[2].append(v.bias)
        if isinstance(v, bn):
            g[1].append(v.weight)
        elif hasattr(v, 'weight') and isinstance(v.weight, nn.Parameter):
            g[0].append(v.weight)
    optimizer = SGD(g[2], lr=hyp['lr0'], momentum=hyp['momentum'], nesterov=True)
    optimizer.add_param_group({'params': g[0], 'weight_decay': hyp['weight_decay']})
    optimizer.add_param_group({'params': g[1]})
    lf = lambda x: (1 - x / epochs) * (1.0 - hyp['lrf']) + hyp['lrf']
    scheduler = lr_scheduler.LambdaLR(optimizer, lr_lambda=lf)
    ema = ModelEMA(model)

    train_loader, dataset = create_dataloader(400, 0, batch_size, augment=True, shuffle=True)
    val_loader, _ = create_dataloader(131, 1, batch_size * 2)
    nb = len(train_loader)
    nw = max(round(hyp['warmup_epochs'] * nb), 10)
    last_opt_step = -1
    model.nc = 3
    model.hyp = hyp
    scaler = torch.amp.GradScaler('cuda', enabled=cuda)
    stopper = EarlyStopping(patience=opt.patience)
    compute_loss = ComputeLoss(model)
    best_fitness = 0.0
    t0 = time.time()
    optimizer.zero_grad()
    for epoch in range(epochs):
        model.train()
        mloss = torch.zeros(2, device=device)
        pbar = tqdm(enumerate(train_loader), total=nb)
        for i, (imgs, targets) in pbar:
            ni = i + nb * epoch
            imgs, targets = imgs.to(device, non_blocking=True), targets.to(device)
            if ni <= nw:
                xi = [0, nw]
                accumulate = max(1, np.interp(ni, xi, [1, nbs / batch_size]).round())
                for j, x in enumerate(optimizer.param_groups):
                    x['lr'] = np.interp(ni, xi, [0.05 if j == 0 else 0.0, x['initial_lr'] * lf(epoch)])
            with torch.amp.autocast(device.type, enabled=cuda):
                pred = model(imgs)
                loss, loss_items = compute_loss(pred, targets)
            scaler.scale(loss / nbs).backward()
            if ni - last_opt_step >= accumulate:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=10.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                ema.update(model)
                last_opt_step = ni
            mloss = (mloss * i + loss_items) / (i + 1)
            pbar.set_description('%8s box %.4f cls %.4f' % (f'{epoch}/{epochs - 1}', *mloss))
        lr = [x['lr'] for x in optimizer.param_groups]
        scheduler.step()

        ema.update_attr(model)
        fi, per_class, vloss, seen = validate(ema.ema, val_loader, compute_loss, device)
        s = 'epoch %d  fitness %.4f  per class %s  val box %.4f cls %.4f  (%d images)' % (
            epoch, fi, np.round(per_class, 3).tolist(), *vloss, seen)
        print(s)
        with open(results_file, 'a') as f:
            f.write(s + '  lr %s\n' % lr)
        stop = stopper(epoch, fi)
        if fi > best_fitness:
            best_fitness = fi
        ckpt = {'epoch': epoch,
                'best_fitness': best_fitness,
                'model': de_parallel(model).half() if cuda else de_parallel(model),
                'ema': ema.ema,
                'updates': ema.updates,
                'optimizer': optimizer.state_dict(),
                'opt': vars(opt)}
        torch.save(ckpt, last)
        if best_fitness == fi:
            torch.save(ckpt, best)
        if cuda:
            model.float()
        del ckpt
        if stop:
            break

    print(f'\n{epoch + 1} epochs completed in {time.time() - t0:.2f} s')
    for f in last, best:
        if f.exists():
            strip_optimizer(f)
    net = torch.load(best, map_location=device, weights_only=False)['model'].float()
    fi, per_class, _, _ = validate(net, val_loader, compute_loss, device)
    print(f'best.pt: fitness {fi:.4f}, results in {save_dir}')


def parse_opt():
    parser = argparse.ArgumentParser()
    parser.add_argument('--epochs', type=int, default=100)
    parser.add_argument('--batch-size', type=int, default=16)
    parser.add_argument('--device', default='')
    parser.add_argument('--project', default='runs/train')
    parser.add_argument('--name', default='exp')
    parser.add_argument('--patience', type=int, default=100)
    return parser.parse_args()


if __name__ == '__main__':
    opt = parse_opt()
    opt.save_dir = str(increment_path(Path(opt.project) / opt.name))
    train(dict(HYP), opt, select_device(opt.device))
