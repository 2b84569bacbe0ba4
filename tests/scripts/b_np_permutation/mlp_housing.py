import numpy as np
import torch
from torch import nn
from torch.autograd import Variable
from sklearn import datasets, preprocessing
from sklearn.model_selection import train_test_split
import time

# friedman data, 10 columns of which 5 matter
X, Y = datasets.make_friedman1(n_samples=1030, n_features=10, noise=0.4, random_state=4)
X = preprocessing.scale(X).astype('float32')
Y = ((Y - Y.mean()) / Y.std()).astype('float32').reshape(-1, 1)
Xtr, Xte, Ytr, Yte = train_test_split(X, Y, test_size=0.25, random_state=4)
print(Xtr.shape, Xte.shape)

use_cuda = torch.cuda.is_available()

class MLP(nn.Module):
  def __init__(self, n_in, n_hid, n_out):
    super(MLP, self).__init__()
    self.fc1 = nn.Linear(n_in, n_hid)
    self.fc2 = nn.Linear(n_hid, n_hid)
    self.fc3 = nn.Linear(n_hid, n_out)
    self.dropout = nn.Dropout(0.05)

  def forward(self, x):
    h = torch.tanh(self.fc1(x))
    h = self.dropout(torch.tanh(self.fc2(h)))
    return self.fc3(h)

net = MLP(10, 50, 1)
if use_cuda:
  net = net.cuda()
loss_fn = nn.MSELoss()
opt = torch.optim.Adam(net.parameters(), lr=0.01)

BATCH = 50
N = Xtr.shape[0]
best = 1e10

def to_var(a):
  v = Variable(torch.from_numpy(a))
  if use_cuda:
    v = v.cuda()
  return v

for epoch in range(1, 21):
  t = time.time()
  net.train()
  perm = np.random.permutation(N)
  losses = []
  for start in range(0, N, BATCH):
    idx = perm[start:start + BATCH]
    x = to_var(Xtr[idx])
    y = to_var(Ytr[idx])
    opt.zero_grad()
    out = net.forward(x)
    loss = loss_fn(out, y)
    loss.backward()
    opt.step()
    losses.append(loss.item())

  net.eval()
  with torch.no_grad():
    sse = 0.0
    for start in range(0, len(Xte), 100):
      out = net.forward(to_var(Xte[start:start + 100]))
      sse += ((out.cpu().numpy() - Yte[start:start + 100]) ** 2).sum()
  rmse = np.sqrt(sse / len(Xte))
  if rmse < best:
    best = rmse
    torch.save(net.state_dict(), 'mlp.pt')
  if epoch % 4 == 0:
    for g in opt.param_groups:
      g['lr'] *= 0.7
  print('epoch %2d  train mse %.4f  test rmse %.4f  %.2fs' % (epoch, np.mean(losses), rmse, time.time() - t))

net.load_state_dict(torch.load('mlp.pt'))
net.eval()
with torch.no_grad():
  pred = net.forward(to_var(Xte)).cpu().numpy()
print('best rmse %.4f  R2 %.4f' % (best, 1 - ((pred - Yte) ** 2).sum() / ((Yte - Yte.mean()) ** 2).sum()))
