__author__ = 'kk'

import os
import sys
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable
from torch.utils.data import DataLoader

import toyvision
from toyvision import transforms
from toyvision.datasets import Digits
from toyvision.utils import save_image

EPOCHS = 8
BS = 96
OUT = './recon'

if not os.path.exists(OUT):
    os.mkdir(OUT)

tf = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.5, 0.5)])
dataset = Digits('./data', transform=tf)
loader = DataLoader(dataset, batch_size=BS, shuffle=True)
print('%d images, %d batches' % (len(dataset), len(loader)))


class AE(nn.Module):
    def __init__(self, code=12):
        super(AE, self).__init__()
        self.c1 = nn.Conv2d(1, 8, 3, 2, 1)      # 16 -> 8
        self.c2 = nn.Conv2d(8, 16, 3, 2, 1)     # 8 -> 4
        self.bn = nn.BatchNorm2d(16)
        self.to_code = nn.Linear(16 * 16, code)
        self.from_code = nn.Linear(code, 16 * 16)
        self.d2 = nn.ConvTranspose2d(16, 8, 4, 2, 1)
        self.d1 = nn.ConvTranspose2d(8, 1, 4, 2, 1)

    def encode(self, x):
        h = F.relu(self.c1(x))
        h = F.relu(self.bn(self.c2(h)))
        return self.to_code(h.view(-1, 256))

    def decode(self, z):
        h = F.relu(self.from_code(z)).view(-1, 16, 4, 4)
        return F.tanh(self.d1(F.relu(self.d2(h))))

    def forward(self, x):
        z = self.encode(x)
        return self.decode(z), z


net = AE()
mse = nn.MSELoss()
if torch.cuda.is_available():
    net.cuda()
    mse.cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3, weight_decay=1e-5)


def to_img(v):
    return ((v.data.cpu() + 1) * 0.5).clamp(0, 1)


for ep in range(EPOCHS):
    running = 0
    for i, (img, _) in enumerate(loader):
        img = Variable(img)
        if torch.cuda.is_available():
            img = img.cuda()
        out, z = net(img)
        loss = mse(out, img) + 1e-4 * z.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.data
    print('epoch %d  loss %.5f  (last batch %.5f)' % (ep, running / len(loader), loss.data))

    if ep % 2 == 1:
        # whatever the last batch was
        save_image(to_img(img)[:32], '%s/%02d_in.png' % (OUT, ep))
        save_image(to_img(out)[:32], '%s/%02d_out.png' % (OUT, ep))

torch.save(net.state_dict(), 'ae.pth')

# codes of everything, for a scatter plot later
net.eval()
codes = []
for img, label in DataLoader(dataset, batch_size=200):
    if torch.cuda.is_available():
        img = img.cuda()
    codes.append(net.encode(Variable(img)).data.cpu())
codes = torch.cat(codes, 0)
print('codes', tuple(codes.size()), 'std', round(codes.std().item(), 2))
torch.save(codes, 'codes.pt')
