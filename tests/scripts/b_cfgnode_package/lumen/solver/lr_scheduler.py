from bisect import bisect_right

import torch


class WarmupMultiStep(torch.optim.lr_scheduler.LRScheduler):
    """stepped once per iteration; milestones are epochs"""

    def __init__(self, optimizer, milestones, gamma, warmup_iters, iters_per_epoch):
        self.milestones = [m * iters_per_epoch for m in milestones]
        self.gamma = gamma
        self.warmup_iters = warmup_iters
        super().__init__(optimizer)

    def get_lr(self):
        warm = 1.0
        if self.last_epoch < self.warmup_iters:
            a = self.last_epoch / self.warmup_iters
            warm = (1 - a) / 3 + a
        return [b * warm * self.gamma ** bisect_right(self.milestones, self.last_epoch) for b in self.base_lrs]


def make_lr_scheduler(cfg, optimizer, iters_per_epoch):
    return WarmupMultiStep(optimizer, list(cfg.SOLVER.STEPS), cfg.SOLVER.GAMMA, cfg.SOLVER.WARMUP_ITERS, iters_per_epoch)
