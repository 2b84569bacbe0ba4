import math

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical, Normal
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(0)
N = 1600
t = rng.uniform(0, 1, N)
x = t + 0.3 * np.sin(2 * math.pi * t) + rng.uniform(-0.1, 0.1, N)
x = torch.from_numpy(x).float().unsqueeze(1)
t = torch.from_numpy(t).float().unsqueeze(1)


class MDN(nn.Module):
    def __init__(self, n_hidden=32, n_gaussians=4):
        super().__init__()
        self.z_h = nn.Sequential(nn.Linear(1, n_hidden), nn.Tanh())
        self.z_pi = nn.Linear(n_hidden, n_gaussians)
        self.z_mu = nn.Linear(n_hidden, n_gaussians)
        self.z_sigma = nn.Linear(n_hidden, n_gaussians)

    def forward(self, x):
        h = self.z_h(x)
        return torch.log_softmax(self.z_pi(h), -1), self.z_mu(h), torch.exp(self.z_sigma(h).clamp(-5, 3))


def mdn_loss(log_pi, mu, sigma, target):
    log_prob = Normal(mu, sigma).log_prob(target.expand_as(mu))
    return -torch.logsumexp(log_pi + log_prob, dim=1).mean()


def sample(log_pi, mu, sigma):
    k = Categorical(logits=log_pi).sample().unsqueeze(1)
    return torch.normal(mu.gather(1, k), sigma.gather(1, k)).squeeze(1)


if __name__ == '__main__':
    torch.manual_seed(0)
    cuda = torch.cuda.is_available()
    device = torch.device('cuda' if cuda else 'cpu')
    loader = DataLoader(TensorDataset(x[:1300], t[:1300]), batch_size=64, shuffle=True, pin_memory=cuda)
    held_out = DataLoader(TensorDataset(x[1300:], t[1300:]), batch_size=100, pin_memory=cuda)
    network = MDN().to(device)
    optimizer = torch.optim.RMSprop(network.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    for epoch in range(4):
        network.train()
        epoch_loss = []
        for xb, tb in loader:
            xb, tb = xb.to(device, non_blocking=True), tb.to(device, non_blocking=True)
            loss = mdn_loss(*network(xb), tb)
            if torch.isnan(loss):
                raise ValueError('loss is nan at epoch %d' % epoch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimizer.step()
            epoch_loss.append(loss.item())
        scheduler.step()
        network.eval()
        nll = 0.0
        with torch.no_grad():
            for xb, tb in held_out:
                nll += mdn_loss(*network(xb.to(device)), tb.to(device)).item() * xb.shape[0]
        print(f'epoch {epoch}: train {np.mean(epoch_loss):.4f}, held out {nll / len(held_out.dataset):.4f}, lr {scheduler.get_last_lr()[0]:.5f}')
    grid = torch.linspace(0, 1, 200).unsqueeze(1).to(device)
    with torch.no_grad():
        drawn = sample(*network(grid)).cpu().numpy()
    np.savetxt('samples.txt', np.c_[grid.cpu().numpy(), drawn], fmt='%.4f')
    torch.save(network.state_dict(), 'mdn.pth')
