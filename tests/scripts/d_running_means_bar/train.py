import argparse, os, time
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader
from tqdm import tqdm

device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')
hyp = {'lr0': 0.02, 'box': 1.0, 'obj': 1.0, 'cls': 0.5}


class Shapes(Dataset):
    """one bright square an image, its box and whether it is hollow"""
    def __init__(self, n, seed):
        r = np.random.RandomState(seed)
        self.imgs = r.rand(n, 1, 16, 16).astype(np.float32) * 0.3
        self.labels = np.zeros((n, 5), np.float32)
        for i in range(n):
            s = r.randint(4, 9)
            x, y = r.randint(0, 16 - s, 2)
            c = r.randint(2)
            self.imgs[i, 0, y:y + s, x:x + s] += 0.7
            if c:
                self.imgs[i, 0, y + 1:y + s - 1, x + 1:x + s - 1] -= 0.7
            self.labels[i] = c, (x + s / 2) / 16, (y + s / 2) / 16, s / 16, s / 16

    def __len__(self):
        return len(self.imgs)

    def __getitem__(self, i):
        return torch.from_numpy(self.imgs[i]), torch.from_numpy(self.labels[i])


class Tiny(nn.Module):
    def __init__(self, nc=2):
        super().__init__()
        self.nc = nc
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.LeakyReLU(0.1),
                                 nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.LeakyReLU(0.1), nn.Flatten())
        self.head = nn.Linear(256, 4 + nc)

    def forward(self, x):
        return self.head(self.net(x))


def compute_loss(p, targets, model):
    lbox = nn.functional.smooth_l1_loss(p[:, :4].sigmoid(), targets[:, 1:]) * hyp['box']
    lcls = nn.functional.cross_entropy(p[:, 4:], targets[:, 0].long()) * hyp['cls']
    loss = lbox + lcls
    return loss, torch.stack((lbox, lcls, loss)).detach()


def bbox_iou(a, b):
    ax1, ay1, ax2, ay2 = a[:, 0] - a[:, 2] / 2, a[:, 1] - a[:, 3] / 2, a[:, 0] + a[:, 2] / 2, a[:, 1] + a[:, 3] / 2
    bx1, by1, bx2, by2 = b[:, 0] - b[:, 2] / 2, b[:, 1] - b[:, 3] / 2, b[:, 0] + b[:, 2] / 2, b[:, 1] + b[:, 3] / 2
    inter = (torch.min(ax2, bx2) - torch.max(ax1, bx1)).clamp(0) * (torch.min(ay2, by2) - torch.max(ay1, by1)).clamp(0)
    return inter / (a[:, 2] * a[:, 3] + b[:, 2] * b[:, 3] - inter + 1e-9)


@torch.no_grad()
def test(model, dataloader):
    model.eval()
    stats, loss = [], torch.zeros(3, device=device)
    for imgs, targets in tqdm(dataloader, desc='%10s%10s' % ('IoU', 'acc')):
        imgs, targets = imgs.to(device), targets.to(device)
        p = model(imgs)
        loss += compute_loss(p, targets, model)[1]
        iou = bbox_iou(p[:, :4].sigmoid(), targets[:, 1:])
        stats.append((iou.cpu(), (p[:, 4:].argmax(1) == targets[:, 0]).cpu(), targets[:, 0].cpu()))
    stats = [np.concatenate(x, 0) for x in zip(*stats)]
    miou, acc = stats[0].mean(), stats[1].mean()
    per_class = [stats[1][stats[2] == c].mean() for c in range(model.nc)]
    return (miou, acc, *(loss.cpu() / len(dataloader)).tolist()), per_class


def train(opt):
    epochs, batch_size, weights = opt.epochs, opt.batch_size, opt.weights
    os.makedirs(opt.save_dir, exist_ok=True)
    last, best = os.path.join(opt.save_dir, 'last.pt'), os.path.join(opt.save_dir, 'best.pt')
    results_file = os.path.join(opt.save_dir, 'results.txt')

    model = Tiny().to(device)
    pg0, pg1 = [], []
    for k, v in model.named_parameters():
        (pg1 if v.ndim > 1 else pg0).append(v)
    optimizer = torch.optim.SGD(pg0, lr=hyp['lr0'], momentum=0.9, nesterov=True)
    optimizer.add_param_group({'params': pg1, 'weight_decay': 5e-4})
    lf = lambda x: (1 + np.cos(x * np.pi / epochs)) / 2 * 0.95 + 0.05
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=lf)

    start_epoch, best_fitness = 0, 0.0
    if weights.endswith('.pt') and os.path.exists(weights):
        chkpt = torch.load(weights, map_location=device)
        model.load_state_dict(chkpt['model'])
        start_epoch = chkpt['epoch'] + 1
        best_fitness = chkpt['best_fitness']

    dataloader = DataLoader(Shapes(320, 0), batch_size=batch_size, shuffle=True, drop_last=True)
    testloader = DataLoader(Shapes(90, 1), batch_size=batch_size * 2)
    nb = len(dataloader)
    results = (0,) * 5
    t0 = time.time()
    print('Starting training for %g epochs...' % epochs)
    for epoch in range(start_epoch, epochs):
        model.train()
        mloss = torch.zeros(3, device=device)  # mean losses
        pbar = tqdm(enumerate(dataloader), total=nb)
        for i, (imgs, targets) in pbar:
            ni = i + nb * epoch
            imgs, targets = imgs.to(device), targets.to(device)
            if ni <= 5:  # burn-in
                for g in optimizer.param_groups:
                    g['lr'] = hyp['lr0'] * (ni + 1) / 6
            pred = model(imgs)
            loss, loss_items = compute_loss(pred, targets, model)
            if not torch.isfinite(loss):
                print('WARNING: non-finite loss, ending training ', loss_items)
                return results
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mloss = (mloss * i + loss_items) / (i + 1)  # update mean losses
            s = ('%10s' + '%10.3g' * 4) % ('%g/%g' % (epoch, epochs - 1), *mloss, len(targets))
            pbar.set_description(s)
        scheduler.step()
        results, maps = test(model, testloader)
        with open(results_file, 'a') as f:
            f.write(s.split()[0] + '%10.3g' * 3 % tuple(mloss.tolist()) + '%10.3g' * 5 % results + '\n')
        fi = 0.3 * results[0] + 0.7 * results[1]
        if fi > best_fitness:
            best_fitness = fi
        chkpt = {'epoch': epoch, 'best_fitness': best_fitness, 'model': model.state_dict(),
                 'training_results': open(results_file).read(), 'optimizer': optimizer.state_dict()}
        torch.save(chkpt, last)
        if best_fitness == fi:
            torch.save(chkpt, best)
        del chkpt
    print('%g epochs completed' % (epoch - start_epoch + 1))
    print('IoU %.4f acc %.4f' % results[:2], 'per class', ['%.3f' % m for m in maps])
    return results


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--batch-size', type=int, default=16)
    parser.add_argument('--weights', type=str, default='runs/last.pt')
    parser.add_argument('--save-dir', type=str, default='runs')
    opt = parser.parse_args()
    torch.manual_seed(0)
    np.random.seed(0)
    train(opt)
