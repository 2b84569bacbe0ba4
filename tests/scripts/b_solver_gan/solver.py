import datetime
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from logger import Logger
from model import Discriminator, Generator


class Solver(object):
    def __init__(self, config, loader):
        self.cfg = config
        self.loader = loader
        self.device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')
        self.total_step = config.total_step
        self.d_steps = config.d_steps
        self.z_dim = config.z_dim
        self.logger = Logger(config.log_path)
        self.build_model()

    # ------------------------------------------------------------------ setup
    def build_model(self):
        self.G = Generator(self.z_dim, self.cfg.n_attr, self.cfg.g_conv_dim).to(self.device)
        self.D = Discriminator(self.cfg.n_attr, self.cfg.d_conv_dim).to(self.device)
        betas = [self.cfg.beta1, self.cfg.beta2]
        self.g_optimizer = torch.optim.Adam(self.G.parameters(), self.cfg.lr, betas)
        self.d_optimizer = torch.optim.Adam(self.D.parameters(), self.cfg.lr, betas)
        for name, net in (('generator', self.G), ('discriminator', self.D)):
            print(net)
            print(name, 'has', sum([p.nelement() for p in net.parameters()]), 'parameters')
        if self.cfg.pretrained_step:
            self.load(self.cfg.pretrained_step)

    def load(self, step):
        for name in ('G', 'D'):
            path = os.path.join(self.cfg.model_path, '%s_%d.pth' % (name, step))
            getattr(self, name).load_state_dict(torch.load(path))
        print('loaded step', step)

    def save(self, step):
        torch.save(self.G.state_dict(), os.path.join(self.cfg.model_path, 'G_%d.pth' % step))
        torch.save(self.D.state_dict(), os.path.join(self.cfg.model_path, 'D_%d.pth' % step))

    def reset_grad(self):
        self.g_optimizer.zero_grad()
        self.d_optimizer.zero_grad()

    def update_lr(self, step):
        start = self.total_step * self.cfg.decay_from
        if step < start:
            return
        lr = self.cfg.lr * (self.total_step - step) / (self.total_step - start)
        for opt in (self.g_optimizer, self.d_optimizer):
            for group in opt.param_groups:
                group['lr'] = lr

    # ----------------------------------------------------------------- losses
    def penalty(self, real, fake):
        eps = torch.rand(real.size(0), 1, 1, 1, device=self.device)
        mixed = (eps * real + (1 - eps) * fake).detach().requires_grad_(True)
        score, _ = self.D(mixed)
        grad = torch.autograd.grad(score, mixed, torch.ones_like(score), create_graph=True, retain_graph=True)[0]
        return ((grad.reshape(grad.size(0), -1).norm(2, dim=1) - 1) ** 2).mean()

    def attr_loss(self, logit, attr):
        # sum over attributes, mean over the batch
        return F.binary_cross_entropy_with_logits(logit, attr, reduction='sum') / attr.size(0)

    def sample_z(self, n):
        return torch.randn(n, self.z_dim).to(self.device)

    # ------------------------------------------------------------------ train
    def train(self):
        data_iter = iter(self.loader)
        fixed_z = self.sample_z(8)
        _, fixed_attr = next(data_iter)
        fixed_attr = fixed_attr[:8].to(self.device)

        start = time.time()
        for step in range(1, self.total_step + 1):
            try:
                x, attr = next(data_iter)
            except StopIteration:
                data_iter = iter(self.loader)
                x, attr = next(data_iter)
            x = x.to(self.device)
            attr = attr.to(self.device)

            # ---- D
            z = self.sample_z(x.size(0))
            fake = self.G(z, attr).detach()
            score_real, attr_real = self.D(x)
            score_fake, _ = self.D(fake)
            d_adv = score_fake.mean() - score_real.mean()
            d_attr = self.attr_loss(attr_real, attr)
            d_gp = self.penalty(x, fake)
            d_loss = d_adv + self.cfg.lambda_attr * d_attr + self.cfg.lambda_gp * d_gp
            self.reset_grad()
            d_loss.backward()
            self.d_optimizer.step()
            loss = {'d/adv': d_adv.item(), 'd/attr': d_attr.item(), 'd/gp': d_gp.item()}

            # ---- G, with attributes of other images
            if step % self.d_steps == 0:
                wanted = attr[torch.randperm(attr.size(0))]
                fake = self.G(self.sample_z(x.size(0)), wanted)
                score, attr_fake = self.D(fake)
                g_adv = -score.mean()
                g_attr = self.attr_loss(attr_fake, wanted)
                self.reset_grad()
                (g_adv + self.cfg.lambda_attr * g_attr).backward()
                self.g_optimizer.step()
                loss['g/adv'] = g_adv.item()
                loss['g/attr'] = g_attr.item()

            self.update_lr(step)

            if step % self.cfg.log_step == 0:
                elapsed = str(datetime.timedelta(seconds=int(time.time() - start)))
                print('[%s] step %d/%d ' % (elapsed, step, self.total_step) +
                      ' '.join('%s %.4f' % kv for kv in loss.items()))
                for tag, value in loss.items():
                    self.logger.scalar_summary(tag, value, step)
            if step % self.cfg.sample_step == 0:
                self.dump_images(fixed_z, fixed_attr, step)
            if step % self.cfg.save_step == 0:
                self.save(step)

    def dump_images(self, z, attr, step):
        self.G.eval()
        with torch.no_grad():
            img = self.G(z, attr)
        self.G.train()
        img = ((img + 1) / 2).clamp(0, 1).cpu().numpy()
        img = np.concatenate(list(img.transpose(0, 2, 3, 1)), axis=1)
        path = os.path.join(self.cfg.sample_path, 'fake_%06d.png' % step)
        Image.fromarray((img * 255).astype('uint8')).save(path)

    def sample(self):
        self.load(self.cfg.pretrained_step or self.total_step)
        _, attr = next(iter(self.loader))
        self.dump_images(self.sample_z(len(attr)), attr.to(self.device), 0)
