import json
import torch
from torch import nn, optim
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader
from sklearn.datasets import load_digits

STAGES = [dict(size=8, bs=64, lr=4e-3, epochs=2), dict(size=12, bs=48, lr=2e-3, epochs=2), dict(size=16, bs=32, lr=1e-3, epochs=1)]
dev = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
torch.manual_seed(3)
raw = load_digits()


class Resized(Dataset):
    def __init__(self, lo, hi, size):
        x = torch.tensor(raw.images[lo:hi], dtype=torch.float32)[:, None] / 16
        self.x = F.interpolate(x, size=(size, size), mode='bilinear', align_corners=False)
        self.y = torch.tensor(raw.target[lo:hi])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, k):
        return self.x[k], self.y[k]


net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
    nn.Flatten(), nn.Linear(128, 10)).to(dev)
results = []


def fit_stage(cfg):
    train_dl = DataLoader(Resized(0, 1300, cfg['size']), batch_size=cfg['bs'], shuffle=True)
    valid_dl = DataLoader(Resized(1300, 1797, cfg['size']), batch_size=2 * cfg['bs'])
    opt = optim.AdamW(net.parameters(), lr=cfg['lr'])
    sched = optim.lr_scheduler.OneCycleLR(opt, cfg['lr'], total_steps=cfg['epochs'] * len(train_dl))
    for ep in range(cfg['epochs']):
        net.train()
        for xb, yb in train_dl:
            loss = F.cross_entropy(net(xb.to(dev)), yb.to(dev))
            loss.backward()
            opt.step()
            opt.zero_grad()
            sched.step()
        net.eval()
        with torch.no_grad():
            pairs = [(F.cross_entropy(net(xb.to(dev)), yb.to(dev)).item() * len(yb),
                      (net(xb.to(dev)).argmax(1).cpu() == yb).sum().item(), len(yb)) for xb, yb in valid_dl]
        losses, hits, ns = map(sum, zip(*pairs))
        row = dict(size=cfg['size'], epoch=ep, valid_loss=losses / ns, acc=hits / ns)
        results.append(row)
        print('size {size:2d} epoch {epoch} valid {valid_loss:.4f} acc {acc:.4f}'.format(**row))


for cfg in STAGES:
    fit_stage(cfg)
    torch.save(net.state_dict(), 'stage_%d.pth' % cfg['size'])
with open('results.json', 'w') as f:
    json.dump(results, f, indent=1)
