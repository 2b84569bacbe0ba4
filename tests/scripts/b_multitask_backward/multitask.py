# wine: cultivar (3 classes) + alcohol (regression) from the other 12 columns
# both from one trunk
import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, Dataset

device = 'cuda' if torch.cuda.is_available() else 'cpu'
np.random.seed(0)
torch.manual_seed(0)

wine = load_wine(as_frame=True)
df = wine.frame.sample(frac=1.0, random_state=3).reset_index(drop=True)
# only 178 rows: jittered copies for training
base = df.iloc[:120]
test_df = df.iloc[120:].reset_index(drop=True)
feats = [c for c in df.columns if c not in ('target', 'alcohol')]
copies = []
for i in range(6):
    c = base.copy()
    c[feats] = c[feats] * (1 + 0.03 * np.random.randn(*c[feats].shape))
    copies.append(c)
train_df = pd.concat(copies).reset_index(drop=True)

sx = StandardScaler().fit(train_df[feats])
mu, sd = train_df.alcohol.mean(), train_df.alcohol.std()


class WineDS(Dataset):
    def __init__(self, frame):
        self.x = torch.tensor(sx.transform(frame[feats]), dtype=torch.float32)
        self.c = torch.tensor(frame.target.values, dtype=torch.long)
        self.a = torch.tensor(((frame.alcohol - mu) / sd).values, dtype=torch.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.c[i], self.a[i]


train_loader = DataLoader(WineDS(train_df), batch_size=24, shuffle=True)
test_loader = DataLoader(WineDS(test_df), batch_size=24)


class TwoHeads(nn.Module):
    def __init__(self, n_in, n_hidden=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_in, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_hidden), nn.ReLU())
        self.cls_head = nn.Linear(n_hidden, 3)
        self.reg_head = nn.Linear(n_hidden, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.cls_head(h), self.reg_head(h).squeeze(-1)


net = TwoHeads(len(feats)).to(device)
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
history = []

for epoch in range(12):
    net.train()
    tot_cls = tot_reg = 0.
    for x, c, a in train_loader:
        x, c, a = x.to(device), c.to(device), a.to(device)
        logits, alc = net(x)
        loss_cls = F.cross_entropy(logits, c)
        loss_reg = 0.5 * F.mse_loss(alc, a)

        opt.zero_grad()
        loss_cls.backward(retain_graph=True)
        loss_reg.backward()
        opt.step()
        tot_cls += loss_cls.item()
        tot_reg += loss_reg.item()

    net.eval()
    correct_per_class = np.zeros(3)
    count_per_class = np.zeros(3)
    sq_err, n = 0.0, 0
    pred_cls, pred_alc = [], []
    with torch.no_grad():
        for x, c, a in test_loader:
            logits, alc = net(x.to(device))
            p = logits.argmax(1).cpu()
            for k in range(3):
                count_per_class[k] += (c == k).sum().item()
                correct_per_class[k] += ((c == k) & (p == k)).sum().item()
            sq_err += ((alc.cpu() - a) ** 2).sum().item()
            n += len(a)
            pred_cls.append(p.numpy())
            pred_alc.append(alc.cpu().numpy() * sd + mu)
    rmse = sd * np.sqrt(sq_err / n)
    acc = correct_per_class.sum() / count_per_class.sum()
    history.append((tot_cls / len(train_loader), tot_reg / len(train_loader), acc, rmse))
    print('epoch %2d  cls %.4f  reg %.4f | acc %.3f  per class %s  alcohol rmse %.3f' % (
        epoch, *history[-1][:2], acc, np.round(correct_per_class / count_per_class, 2), rmse))

out = test_df[['target', 'alcohol']].copy()
out['pred_target'] = np.concatenate(pred_cls)
out['pred_alcohol'] = np.concatenate(pred_alc).round(2)
out.to_csv('predictions.csv', index_label='row')
torch.save(net.state_dict(), 'wine_two_heads.pt')
print('wrong rows:', out.index[out.target != out.pred_target].tolist())
print('correlation of alcohol: %.3f' % np.corrcoef(out.alcohol, out.pred_alcohol)[0, 1])
