import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument('--members', type=int, default=5)
parser.add_argument('--epochs', type=int, default=2)
parser.add_argument('--no-cuda', action='store_true', default=False)
args = parser.parse_args()
use_cuda = not args.no_cuda and torch.cuda.is_available()
device = torch.device('cuda' if use_cuda else 'cpu')
torch.manual_seed(11)

digits = load_digits()
X, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
train_loader = DataLoader(TensorDataset(X[:1300], y[:1300]), batch_size=50, shuffle=True)
test_loader = DataLoader(TensorDataset(X[1300:], y[1300:]), batch_size=100, shuffle=False)


class Member(nn.Module):
    def __init__(self, width):
        super(Member, self).__init__()
        self.fc1 = nn.Linear(64, width)
        self.fc2 = nn.Linear(width, 10)

    def forward(self, x):
        return F.log_softmax(self.fc2(torch.tanh(self.fc1(x))), dim=1)


models = [Member(32 + 16 * k).to(device) for k in range(args.members)]
optimizers = [torch.optim.Adam(m.parameters(), lr=3e-3) for m in models]


def train(model, optimizer, name):
    model.train()
    for epoch in range(1, args.epochs + 1):
        for batch_idx, (data, target) in enumerate(train_loader):
            data, target = data.to(device), target.to(device)
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            if batch_idx % 20 == 0:
                print('{} epoch {} [{}/{}]\tloss {:.6f}'.format(name, epoch, batch_idx * len(data), len(train_loader.dataset), loss.item()))


def test():
    for m in models:
        m.eval()
    nll, brier, correct = 0, 0, 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            probs = torch.stack([m(data).exp() for m in models]).mean(0)
            nll += F.nll_loss(probs.log(), target, reduction='sum').item()
            brier += ((probs - F.one_hot(target, 10)) ** 2).sum().item()
            correct += probs.argmax(1).eq(target).sum().item()
    n = len(test_loader.dataset)
    print('\nEnsemble of {}: NLL {:.4f}, Brier {:.4f}, accuracy {}/{} ({:.1f}%)\n'.format(len(models), nll / n, brier / n, correct, n, 100. * correct / n))


for k, (m, o) in enumerate(zip(models, optimizers)):
    train(m, o, 'member %d' % k)
test()
torch.save([m.state_dict() for m in models], 'ensemble.pt')
