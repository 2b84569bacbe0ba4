import datetime
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

from helpers import distributed_utils as utils
from helpers.engine import evaluate, train_one_epoch


class DigitFacts(Dataset):
    """is the digit even, and how much ink does it have"""

    def __init__(self, train):
        d = load_digits()
        sl = slice(0, 1401) if train else slice(1401, None)
        self.x = torch.tensor(d.images[sl] / 16, dtype=torch.float32).unsqueeze(1)
        self.y = torch.tensor(d.target[sl])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], {'id': i, 'parity': self.y[i] % 2, 'ink': self.x[i].mean()}


class TwoTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.Flatten())
        self.parity = nn.Linear(24 * 16, 2)
        self.ink = nn.Linear(24 * 16, 1)

    def forward(self, x, targets=None):
        h = self.body(x)
        parity, ink = self.parity(h), self.ink(h).squeeze(1)
        if not self.training:
            return parity, ink
        return {'loss_parity': F.cross_entropy(parity, targets['parity']),
                'loss_ink': 2 * F.l1_loss(ink, targets['ink'])}


def main():
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    print("Using {} device training.".format(device.type))
    results_file = "results{}.txt".format(datetime.datetime.now().strftime("%Y%m%d-%H%M%S"))
    if not os.path.exists("save_weights"):
        os.makedirs("save_weights")

    train_loader = DataLoader(DigitFacts(True), batch_size=48, shuffle=True)
    val_loader = DataLoader(DigitFacts(False), batch_size=64, shuffle=False)
    model = TwoTask().to(device)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=0.03, momentum=0.9, weight_decay=5e-4)
    lr_scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 3], gamma=0.33)

    best = 0.
    for epoch in range(4):
        mean_loss = train_one_epoch(model, optimizer, train_loader, device, epoch)
        lr = optimizer.param_groups[0]["lr"]
        lr_scheduler.step()
        acc = evaluate(model, val_loader, device)
        with open(results_file, "a") as f:
            f.write("%d %.4f %.4f %.6f\n" % (epoch, mean_loss, acc, lr))
        save_files = {'model': model.state_dict(), 'optimizer': optimizer.state_dict(),
                      'lr_scheduler': lr_scheduler.state_dict(), 'epoch': epoch}
        utils.save_on_master(save_files, "./save_weights/model-{}.pth".format(epoch))
        if acc > best:
            best = acc
            utils.save_on_master(save_files, "./save_weights/best.pth")
    print("best", round(best, 4))


if __name__ == "__main__":
    main()
