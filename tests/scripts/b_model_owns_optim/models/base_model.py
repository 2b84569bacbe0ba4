import os
from collections import OrderedDict

import torch

from . import networks


class BaseModel():
    def __init__(self, opt):
        self.opt = opt
        self.gpu_ids = opt.gpu_ids
        self.isTrain = opt.isTrain
        self.device = torch.device('cuda:{}'.format(self.gpu_ids[0])) if self.gpu_ids else torch.device('cpu')
        self.save_dir = os.path.join(opt.checkpoints_dir, opt.name)
        self.loss_names = []
        self.model_names = []
        self.visual_names = []
        self.optimizers = []

    def set_input(self, input):
        raise NotImplementedError

    def forward(self):
        raise NotImplementedError

    def optimize_parameters(self):
        raise NotImplementedError

    def setup(self, opt):
        if self.isTrain:
            self.schedulers = [networks.get_scheduler(o, opt) for o in self.optimizers]
        for name in self.model_names:
            net = getattr(self, 'net' + name)
            print('[Network %s] Total number of parameters : %.3f K' % (
                name, sum(p.numel() for p in net.parameters()) / 1e3))

    def update_learning_rate(self):
        for s in self.schedulers:
            s.step()
        print('learning rate = %.7f' % self.optimizers[0].param_groups[0]['lr'])

    def current_losses(self):
        return OrderedDict((n, float(getattr(self, 'loss_' + n))) for n in self.loss_names)

    def current_visuals(self):
        return OrderedDict((n, getattr(self, n)) for n in self.visual_names)

    def save_networks(self, epoch):
        for name in self.model_names:
            net = getattr(self, 'net' + name)
            path = os.path.join(self.save_dir, '%s_net_%s.pth' % (epoch, name))
            if len(self.gpu_ids) > 0 and torch.cuda.is_available():
                torch.save(net.module.cpu().state_dict(), path)
                net.cuda(self.gpu_ids[0])
            else:
                torch.save(net.cpu().state_dict(), path)

    def set_requires_grad(self, nets, requires_grad=False):
        if not isinstance(nets, list):
            nets = [nets]
        for net in nets:
            for p in net.parameters():
                p.requires_grad = requires_grad
