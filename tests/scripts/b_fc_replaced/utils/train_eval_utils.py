import sys

import torch
from tqdm import tqdm


def train_one_epoch(model, optimizer, data_loader, device, epoch):
    model.train()
    loss_function = torch.nn.CrossEntropyLoss()
    mean_loss = torch.zeros(1).to(device)
    optimizer.zero_grad()
    data_loader = tqdm(data_loader, file=sys.stdout)
    for step, data in enumerate(data_loader):
        images, labels = data
        pred = model(images.to(device))
        loss = loss_function(pred, labels.to(device))
        loss.backward()
        # 累计平均损失
        mean_loss = (mean_loss * step + loss.detach()) / (step + 1)
        data_loader.desc = "[epoch {}] mean loss {}".format(epoch, round(mean_loss.item(), 3))
        if not torch.isfinite(loss):
            print('WARNING: non-finite loss, ending training ', loss)
            sys.exit(1)
        optimizer.step()
        optimizer.zero_grad()
    return mean_loss.item()


@torch.no_grad()
def evaluate(model, data_loader):
    model.eval()
    device = next(model.parameters()).device
    total_num = len(data_loader.dataset)
    sum_num = torch.zeros(1).to(device)
    for images, labels in data_loader:
        pred = torch.max(model(images.to(device)), dim=1)[1]
        sum_num += torch.eq(pred, labels.to(device)).sum()
    return sum_num.item() / total_num
