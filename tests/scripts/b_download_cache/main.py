import argparse
import csv

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader

from vision_data import Compose, MiniMNIST, RandomShift, ToFloat


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, 3, padding=1)
        self.conv2 = nn.Conv2d(10, 20, 3, padding=1)
        self.drop = nn.Dropout2d(0.2)
        self.fc1 = nn.Linear(80, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.drop(self.conv2(x)), 2))
        x = x.view(-1, 80)
        x = F.dropout(F.relu(self.fc1(x)), training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


def train(model, loader, optimizer, epoch, device=torch.device('cuda' if torch.cuda.is_available() else 'cpu'), verbose=True):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        if verbose and batch_idx % 10 == 0:
            print(f'Epoch {epoch} [{batch_idx * len(data)}/{len(loader.dataset)} '
                  f'({100. * batch_idx / len(loader):.0f}%)] Loss: {loss.item():.5f}')


@torch.no_grad()
def test(model, loader, device=torch.device('cuda' if torch.cuda.is_available() else 'cpu')):
    model.eval()
    test_loss = 0
    correct = 0
    for data, target in loader:
        data, target = data.to(device), target.to(device)
        output = model(data)
        test_loss += F.nll_loss(output, target, reduction='sum').item()
        pred = output.max(1, keepdim=True)[1]
        correct += pred.eq(target.view_as(pred)).sum().item()
    test_loss /= len(loader.dataset)
    print(f'Test: average loss {test_loss:.4f}, accuracy {correct}/{len(loader.dataset)} '
          f'({100. * correct / len(loader.dataset):.1f}%)')
    return test_loss


def predict(model, loader, device=None):
    device = device or next(model.parameters()).device
    model.eval()
    preds = torch.LongTensor()
    for data, _ in loader:
        with torch.no_grad():
            output = model(data.to(device))
        preds = torch.cat((preds, output.cpu().max(1)[1]), dim=0)
    return preds


def show(img):
    # ascii, for a look without a screen
    for row in img:
        print(''.join(' .:*#'[min(4, int(v) // 50)] for v in row))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--epochs', type=int, default=20)
    parser.add_argument('--bs', type=int, default=64)
    parser.add_argument('--lr', type=float, default=0.03)
    opt = parser.parse_args()

    train_tf = Compose([RandomShift(), ToFloat()])
    train_set = MiniMNIST('./data', train=True, download=True, transform=train_tf)
    test_set = MiniMNIST('./data', train=False, download=True, transform=ToFloat())
    kwargs = {'num_workers': 1, 'pin_memory': True} if torch.cuda.is_available() else {}
    train_loader = DataLoader(train_set, batch_size=opt.bs, shuffle=True, **kwargs)
    test_loader = DataLoader(test_set, batch_size=opt.bs * 2, shuffle=False, **kwargs)

    model = LeNet()
    if torch.cuda.is_available():
        model = model.cuda()
    optimizer = optim.SGD(model.parameters(), lr=opt.lr * 5, momentum=0.9)
    sched = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    for epoch in range(1, opt.epochs + 1):
        train(model, train_loader, optimizer, epoch)
        test(model, test_loader)
        sched.step()
    torch.save(model.state_dict(), 'mini_cnn.pt')

    preds = predict(model, test_loader)
    with open('submission.csv', 'w', newline='') as f:
        w = csv.writer(f)
        w.writerow(['ImageId', 'Label'])
        for i, p in enumerate(preds.tolist()):
            w.writerow([i + 1, p])
    print('wrote', len(preds), 'rows')


if __name__ == '__main__':
    main()
