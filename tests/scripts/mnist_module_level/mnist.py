# First steps with PyTorch: a small convolutional net on handwritten digits.
# Everything lives at module level so that you can paste it block by block.
import os
import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn, optim
import torch.nn.functional as F

import datasets
import transforms

EPOCHS = 3
BATCH = 64
BATCH_TEST = 100
LR = 0.02
MOMENTUM = 0.5
EVERY = 5
SEED = 1

torch.manual_seed(SEED)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

if not os.path.exists('results'):
    os.makedirs('results')

to_input = transforms.Compose([transforms.ToTensor(),
                               transforms.Normalize((0.13,), (0.31,))])

train_loader = torch.utils.data.DataLoader(
    datasets.MNIST('files', train=True, download=True, transform=to_input),
    batch_size=BATCH, shuffle=True)

test_loader = torch.utils.data.DataLoader(
    datasets.MNIST('files', train=False, download=True, transform=to_input),
    batch_size=BATCH_TEST, shuffle=True)

# have a look at some of them
sample_x, sample_y = next(iter(test_loader))
print('one batch of test data:', sample_x.shape, sample_y.shape)

fig, axes = plt.subplots(2, 3)
for ax, im, lab in zip(axes.flat, sample_x, sample_y):
    ax.imshow(im[0], cmap='gray')
    ax.set_title('label %d' % lab)
    ax.axis('off')
fig.savefig('results/samples.png')
plt.close(fig)


class DigitNet(nn.Module):
    def __init__(self):
        super(DigitNet, self).__init__()
        self.c1 = nn.Conv2d(1, 8, 5)
        self.c2 = nn.Conv2d(8, 16, 5)
        self.drop = nn.Dropout2d()
        self.l1 = nn.Linear(16 * 4 * 4, 48)
        self.l2 = nn.Linear(48, 10)

    def forward(self, x):
        x = F.max_pool2d(self.c1(x), 2).relu()
        x = F.max_pool2d(self.drop(self.c2(x)), 2).relu()
        x = self.l1(x.view(-1, 256)).relu()
        x = F.dropout(x, training=self.training)
        return F.log_softmax(self.l2(x), dim=1)


net = DigitNet().to(device)
opt = optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM)

loss_log, loss_at = [], []
test_log = []
test_at = [e * len(train_loader.dataset) for e in range(EPOCHS + 1)]


def train(epoch):
    net.train()
    for step, (x, y) in enumerate(train_loader):
        x, y = x.to(device), y.to(device)
        opt.zero_grad()
        loss = F.nll_loss(net(x), y)
        loss.backward()
        opt.step()
        if step % EVERY == 0:
            seen = step * BATCH
            print('epoch {} [{}/{} = {:.0f}%] loss {:.4f}'.format(
                epoch, seen, len(train_loader.dataset), 100. * step / len(train_loader), loss.item()))
            loss_log.append(loss.item())
            loss_at.append(seen + (epoch - 1) * len(train_loader.dataset))
            torch.save(net.state_dict(), 'results/net.pth')
            torch.save(opt.state_dict(), 'results/opt.pth')


def test():
    net.eval()
    total_loss = 0
    hits = 0
    with torch.no_grad():
        for x, y in test_loader:
            x, y = x.to(device), y.to(device)
            out = net(x)
            total_loss += F.nll_loss(out, y, reduction='sum').item()
            guess = out.data.max(1, keepdim=True)[1]
            hits += guess.eq(y.data.view_as(guess)).sum()
    total_loss /= len(test_loader.dataset)
    test_log.append(total_loss)
    print('  -> test loss {:.4f}, {}/{} right ({:.1f}%)\n'.format(
        total_loss, hits, len(test_loader.dataset), 100. * hits / len(test_loader.dataset)))


test()   # how bad is it before training?
for epoch in range(1, EPOCHS + 1):
    train(epoch)
    test()

fig = plt.figure()
plt.plot(loss_at, loss_log, color='tab:blue', label='train')
plt.scatter(test_at, test_log, color='tab:red', label='test')
plt.legend()
plt.xlabel('examples seen')
plt.ylabel('nll')
fig.savefig('results/curve.png')

with torch.no_grad():
    out = net(sample_x.to(device))
print('guesses', out.argmax(1)[:6].tolist(), 'truth', sample_y[:6].tolist())

# and this is how to go on from the files another day
net2 = DigitNet().to(device)
opt2 = optim.SGD(net2.parameters(), lr=LR, momentum=MOMENTUM)
net2.load_state_dict(torch.load('results/net.pth'))
opt2.load_state_dict(torch.load('results/opt.pth'))
print('restored', sum(p.numel() for p in net2.parameters()), 'numbers')
