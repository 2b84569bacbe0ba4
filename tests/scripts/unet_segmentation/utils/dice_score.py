import torch
from torch import Tensor


def dice_coeff(input: Tensor, target: Tensor, reduce_batch_first: bool = False, epsilon: float = 1e-6):
    # mean over the batch of the dice of each mask (or one dice of all of them)
    assert input.size() == target.size()
    dims = (-1, -2) if not reduce_batch_first else tuple(range(input.dim()))
    inter = 2 * (input * target).sum(dim=dims)
    both = input.sum(dim=dims) + target.sum(dim=dims)
    both = torch.where(both == 0, inter, both)
    return ((inter + epsilon) / (both + epsilon)).mean()


def multiclass_dice_coeff(input: Tensor, target: Tensor, reduce_batch_first: bool = False):
    return dice_coeff(input.flatten(0, 1), target.flatten(0, 1), reduce_batch_first)


def dice_loss(input: Tensor, target: Tensor, multiclass: bool = False):
    fn = multiclass_dice_coeff if multiclass else dice_coeff
    return 1 - fn(input, target, reduce_batch_first=True)
