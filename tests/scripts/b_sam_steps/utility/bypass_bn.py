from torch.nn.modules.batchnorm import _BatchNorm


def disable_running_stats(model):
    for m in model.modules():
        if isinstance(m, _BatchNorm):
            m.backup_momentum = m.momentum
            m.momentum = 0


def enable_running_stats(model):
    for m in model.modules():
        if isinstance(m, _BatchNorm) and hasattr(m, "backup_momentum"):
            m.momentum = m.backup_momentum
