import torch
import torch.nn as nn
from tqdm import tqdm

from utils import AverageMeter


def loss_fn(outputs, targets):
    return nn.BCEWithLogitsLoss()(outputs, targets.view(-1, 1))


def train_fn(data_loader, model, optimizer, device, scheduler=None):
    model.train()
    losses = AverageMeter()
    tk0 = tqdm(data_loader, total=len(data_loader))
    for bi, d in enumerate(tk0):
        x = d["x"].to(device, dtype=torch.float)
        y = d["y"].to(device, dtype=torch.float)

        optimizer.zero_grad()
        outputs = model(x)
        loss = loss_fn(outputs, y)
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        losses.update(loss.item(), x.size(0))
        tk0.set_postfix(loss=losses.avg)
    return losses.avg


def eval_fn(data_loader, model, device):
    model.eval()
    fin_targets = []
    fin_outputs = []
    losses = AverageMeter()
    with torch.no_grad():
        for bi, d in tqdm(enumerate(data_loader), total=len(data_loader)):
            x = d["x"].to(device, dtype=torch.float)
            y = d["y"].to(device, dtype=torch.float)
            outputs = model(x)
            losses.update(loss_fn(outputs, y).item(), x.size(0))
            fin_targets.extend(y.cpu().detach().numpy().tolist())
            fin_outputs.extend(torch.sigmoid(outputs).cpu().detach().numpy().tolist())
    return fin_outputs, fin_targets, losses.avg
