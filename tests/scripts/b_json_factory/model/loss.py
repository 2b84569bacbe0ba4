import torch.nn.functional as F


def smooth_l1(output, target):
    return F.smooth_l1_loss(output, target)


def mse(output, target):
    return F.mse_loss(output, target)
