import math
import copy
from pathlib import Path
from functools import partial

import torch
from torch import nn
import torch.nn.functional as F
from torch.optim import Adam
from torch.utils.data import Dataset, DataLoader
from sklearn.datasets import make_swiss_roll


def exists(x):
    return x is not None


def default(val, d):
    if exists(val):
        return val
    return d() if callable(d) else d


def cycle(dl):
    while True:
        for data in dl:
            yield data


def num_to_groups(num, divisor):
    groups = num // divisor
    remainder = num % divisor
    arr = [divisor] * groups
    if remainder > 0:
        arr.append(remainder)
    return arr


class EMA():
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def update_model_average(self, ma_model, current_model):
        for current_params, ma_params in zip(current_model.parameters(), ma_model.parameters()):
            old_weight, up_weight = ma_params.data, current_params.data
            ma_params.data = self.update_average(old_weight, up_weight)

    def update_average(self, old, new):
        if old is None:
            return new
        return old * self.beta + (1 - self.beta) * new


class Denoiser(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.inp = nn.Linear(2, dim)
        self.mid = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.SiLU())
        self.out = nn.Linear(dim, 2)

    def forward(self, x, t):
        h = self.inp(x) + self.time(t[:, None].float() / 100)
        return self.out(h + self.mid(h))


def extract(a, t, x_shape):
    b, *_ = t.shape
    out = a.gather(-1, t)
    return out.reshape(b, *((1,) * (len(x_shape) - 1)))


class GaussianDiffusion(nn.Module):
    def __init__(self, denoise_fn, *, timesteps=100, loss_type='l1'):
        super().__init__()
        self.denoise_fn = denoise_fn
        betas = torch.linspace(1e-4, 0.02, timesteps)
        alphas_cumprod = torch.cumprod(1. - betas, dim=0)
        self.num_timesteps = timesteps
        self.loss_type = loss_type
        self.register_buffer('betas', betas)
        self.register_buffer('sqrt_alphas_cumprod', torch.sqrt(alphas_cumprod))
        self.register_buffer('sqrt_one_minus_alphas_cumprod', torch.sqrt(1. - alphas_cumprod))

    def q_sample(self, x_start, t, noise=None):
        noise = default(noise, lambda: torch.randn_like(x_start))
        return (extract(self.sqrt_alphas_cumprod, t, x_start.shape) * x_start +
                extract(self.sqrt_one_minus_alphas_cumprod, t, x_start.shape) * noise)

    @torch.no_grad()
    def sample(self, batch_size=16):
        x = torch.randn(batch_size, 2, device=self.betas.device)
        for i in reversed(range(self.num_timesteps)):
            t = torch.full((batch_size,), i, device=self.betas.device, dtype=torch.long)
            eps = self.denoise_fn(x, t)
            x = (x - self.betas[i] / self.sqrt_one_minus_alphas_cumprod[i] * eps) / math.sqrt(1 - self.betas[i])
        return x

    def p_losses(self, x_start, t, noise=None):
        noise = default(noise, lambda: torch.randn_like(x_start))
        x_recon = self.denoise_fn(self.q_sample(x_start, t, noise), t)
        if self.loss_type == 'l1':
            return (noise - x_recon).abs().mean()
        return F.mse_loss(noise, x_recon)

    def forward(self, x):
        t = torch.randint(0, self.num_timesteps, (x.shape[0],), device=x.device).long()
        return self.p_losses(x, t)


class Roll(Dataset):
    def __init__(self, n):
        super().__init__()
        pts, _ = make_swiss_roll(n, noise=0.3, random_state=0)
        self.pts = torch.tensor(pts[:, [0, 2]] / 10, dtype=torch.float32)

    def __len__(self):
        return len(self.pts)

    def __getitem__(self, i):
        return self.pts[i]


class Trainer(object):
    def __init__(self, diffusion_model, *, ema_decay=0.95, train_batch_size=32, train_lr=1e-3, train_num_steps=60,
                 gradient_accumulate_every=2, step_start_ema=20, update_ema_every=5, save_and_sample_every=20,
                 results_folder='./results'):
        super().__init__()
        self.model = diffusion_model
        self.ema = EMA(ema_decay)
        self.ema_model = copy.deepcopy(self.model)
        self.update_ema_every = update_ema_every
        self.step_start_ema = step_start_ema
        self.save_and_sample_every = save_and_sample_every
        self.batch_size = train_batch_size
        self.gradient_accumulate_every = gradient_accumulate_every
        self.train_num_steps = train_num_steps
        self.ds = Roll(1024)
        self.dl = cycle(DataLoader(self.ds, batch_size=train_batch_size, shuffle=True, pin_memory=torch.cuda.is_available()))
        self.opt = Adam(diffusion_model.parameters(), lr=train_lr)
        self.step = 0
        self.results_folder = Path(results_folder)
        self.results_folder.mkdir(exist_ok=True)
        self.reset_parameters()

    def reset_parameters(self):
        self.ema_model.load_state_dict(self.model.state_dict())

    def step_ema(self):
        if self.step < self.step_start_ema:
            self.reset_parameters()
            return
        self.ema.update_model_average(self.ema_model, self.model)

    def save(self, milestone):
        data = {'step': self.step, 'model': self.model.state_dict(), 'ema': self.ema_model.state_dict()}
        torch.save(data, str(self.results_folder / f'model-{milestone}.pt'))

    def load(self, milestone):
        data = torch.load(str(self.results_folder / f'model-{milestone}.pt'))
        self.step = data['step']
        self.model.load_state_dict(data['model'])
        self.ema_model.load_state_dict(data['ema'])

    def train(self):
        backwards = partial(loss_backwards, False)
        while self.step < self.train_num_steps:
            for i in range(self.gradient_accumulate_every):
                data = next(self.dl)
                loss = self.model(data)
                print(f'{self.step}: {loss.item()}')
                backwards(loss / self.gradient_accumulate_every, self.opt)
            self.opt.step()
            self.opt.zero_grad()
            if self.step % self.update_ema_every == 0:
                self.step_ema()
            if self.step != 0 and self.step % self.save_and_sample_every == 0:
                milestone = self.step // self.save_and_sample_every
                batches = num_to_groups(36, self.batch_size)
                samples = torch.cat(list(map(lambda n: self.ema_model.sample(batch_size=n), batches)), dim=0)
                torch.save(samples, str(self.results_folder / f'sample-{milestone}.pt'))
                self.save(milestone)
            self.step += 1
        print('training completed')


def loss_backwards(fp16, loss, optimizer, **kwargs):
    if fp16:
        with torch.cuda.amp.autocast():
            loss.backward(**kwargs)
    else:
        loss.backward(**kwargs)


if __name__ == '__main__':
    torch.manual_seed(7)
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    diffusion = GaussianDiffusion(Denoiser(32)).to(device)
    trainer = Trainer(diffusion)
    trainer.train()
