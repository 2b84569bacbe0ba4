import torch
import torch.nn as nn
import torch.nn.functional as F


class LatentModel(nn.Module):
    def __init__(self, n_in=64, h=96, z=8):
        super().__init__()
        self.z = z
        self.enc = nn.Sequential(nn.Linear(n_in, h), nn.ReLU())
        self.mu, self.logvar = nn.Linear(h, z), nn.Linear(h, z)
        self.dec = nn.Sequential(nn.Linear(z, h), nn.ReLU(), nn.Linear(h, n_in))
        self.prior_scale = nn.Parameter(torch.zeros(z))

    def encode(self, x):
        h = self.enc(x)
        return self.mu(h), self.logvar(h).clamp(-8, 4)

    def reparam(self, mu, logvar):
        if not self.training:
            return mu
        return mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)

    def decode(self, z):
        return self.dec(z)

    def loss(self, x, logits, mu, logvar, beta):
        rec = F.binary_cross_entropy_with_logits(logits, x, reduction='sum')
        # prior N(0, exp(prior_scale))
        s = self.prior_scale
        kl = 0.5 * torch.sum(s - logvar + (logvar.exp() + mu ** 2) / s.exp() - 1)
        n = x.size(0)
        return (rec + beta * kl) / n, rec / n, kl / n

    @torch.no_grad()
    def sample(self, n):
        dev = self.prior_scale.device
        z = torch.randn(n, self.z, device=dev) * torch.exp(0.5 * self.prior_scale)
        return torch.sigmoid(self.decode(z))
