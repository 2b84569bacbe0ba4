import os

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestCentroid
from torch.utils.data import DataLoader, TensorDataset

from model import LatentModel

hp = {'bs': 80, 'lr': 3e-3, 'epochs': 9, 'beta_max': 0.5, 'warm': 0.4, 'seed': 5}
torch.manual_seed(hp['seed'])
dev = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

X, y = load_digits(return_X_y=True)
X = torch.tensor(X / 16, dtype=torch.float32)
y = torch.tensor(y)
train_ds, test_ds = TensorDataset(X[:1300], y[:1300]), TensorDataset(X[1300:], y[1300:])
train_dl = DataLoader(train_ds, batch_size=hp['bs'], shuffle=True)
test_dl = DataLoader(test_ds, batch_size=hp['bs'])

model = LatentModel().to(dev)
opt = torch.optim.Adam([
    {'params': [p for n, p in model.named_parameters() if n != 'prior_scale']},
    {'params': [model.prior_scale], 'lr': hp['lr'] / 10},
], lr=hp['lr'])
total_steps = hp['epochs'] * len(train_dl)
step = 0
os.makedirs('samples', exist_ok=True)

for epoch in range(hp['epochs']):
    model.train()
    sums = np.zeros(3)
    for x, _ in train_dl:
        x = x.to(dev)
        beta = hp['beta_max'] * min(1.0, step / (hp['warm'] * total_steps))
        mu, logvar = model.encode(x)
        z = model.reparam(mu, logvar)
        logits = model.decode(z)
        loss, rec, kl = model.loss(x, logits, mu, logvar, beta)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sums += np.array([loss.item(), rec.item(), kl.item()]) * len(x)
        step += 1
    sums /= len(train_ds)

    model.eval()
    elbo, n = 0.0, 0
    codes, labels = [], []
    with torch.no_grad():
        for x, t in test_dl:
            x = x.to(dev)
            mu, logvar = model.encode(x)
            out = model.decode(model.reparam(mu, logvar))
            elbo += model.loss(x, out, mu, logvar, 1.0)[0].item() * len(x)
            n += len(x)
            codes.append(mu.cpu())
            labels.append(t)
    codes, labels = torch.cat(codes).numpy(), torch.cat(labels).numpy()
    half = len(codes) // 2
    acc = NearestCentroid().fit(codes[:half], labels[:half]).score(codes[half:], labels[half:])
    print(f'{epoch}: loss {sums[0]:.3f} rec {sums[1]:.3f} kl {sums[2]:.3f} beta {beta:.2f} | '
          f'test -elbo {elbo / n:.3f} centroid acc {acc:.3f}')
    if epoch % 3 == 2:
        s = model.sample(10).view(10, 8, 8).cpu().numpy()
        Image.fromarray((np.hstack(list(s)) * 255).astype(np.uint8)).resize((640, 64)).save(f'samples/{epoch}.png')

torch.save({'model': model.state_dict(), 'hp': hp, 'z': model.z}, 'latent.pt')
np.save('codes.npy', codes)
