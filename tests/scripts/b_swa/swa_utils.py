import torch


def adjust_learning_rate(optimizer, lr):
    for group in optimizer.param_groups:
        group['lr'] = lr
    return lr


def train_epoch(loader, model, criterion, optimizer, device):
    loss_sum = 0.0
    correct = 0.0
    model.train()
    for x, target in loader:
        x, target = x.to(device), target.to(device)
        out = model(x)
        loss = criterion(out, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.item() * x.size(0)
        correct += out.data.argmax(1).eq(target).sum().item()
    n = len(loader.dataset)
    return {'loss': loss_sum / n, 'accuracy': 100.0 * correct / n}


def evaluate(loader, model, criterion, device):
    loss_sum = 0.0
    correct = 0.0
    model.eval()
    with torch.no_grad():
        for x, target in loader:
            x, target = x.to(device), target.to(device)
            out = model(x)
            loss_sum += criterion(out, target).item() * x.size(0)
            correct += out.argmax(1).eq(target).sum().item()
    n = len(loader.dataset)
    return {'loss': loss_sum / n, 'accuracy': 100.0 * correct / n}


def moving_average(net1, net2, alpha=1):
    for p1, p2 in zip(net1.parameters(), net2.parameters()):
        p1.data *= (1.0 - alpha)
        p1.data += p2.data * alpha


def _is_bn(m):
    return issubclass(m.__class__, torch.nn.modules.batchnorm._BatchNorm)


def bn_update(loader, model, device):
    """one pass over the training data to get the statistics of the averaged weights"""
    bns = [m for m in model.modules() if _is_bn(m)]
    if not bns:
        return
    model.train()
    momenta = {m: m.momentum for m in bns}
    for m in bns:
        m.reset_running_stats()
    n = 0
    with torch.no_grad():
        for x, _ in loader:
            x = x.to(device)
            b = x.size(0)
            for m in bns:
                m.momentum = b / (n + b)
            model(x)
            n += b
    for m in bns:
        m.momentum = momenta[m]
