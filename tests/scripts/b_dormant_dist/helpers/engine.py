import math
import sys

import torch

from . import distributed_utils as utils


def warmup_lr_scheduler(optimizer, warmup_iters, warmup_factor):
    def f(x):
        if x >= warmup_iters:
            return 1
        alpha = float(x) / warmup_iters
        return warmup_factor * (1 - alpha) + alpha
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=f)


def train_one_epoch(model, optimizer, data_loader, device, epoch, print_freq=10):
    model.train()
    metric_logger = utils.MetricLogger()
    metric_logger.meters['lr'] = utils.SmoothedValue(window_size=1, fmt='{value:.6f}')
    lr_scheduler = None
    if epoch == 0:
        lr_scheduler = warmup_lr_scheduler(optimizer, min(20, len(data_loader) - 1), 1. / 50)
    for images, targets in metric_logger.log_every(data_loader, print_freq, 'Epoch: [%d]' % epoch):
        images = images.to(device)
        targets = {k: v.to(device) for k, v in targets.items()}
        loss_dict = model(images, targets)
        losses = sum(loss for loss in loss_dict.values())

        # reduce losses over all GPUs for logging purposes
        loss_dict_reduced = utils.reduce_dict(loss_dict)
        losses_reduced = sum(loss for loss in loss_dict_reduced.values())
        if not math.isfinite(losses_reduced.item()):
            print("Loss is {}, stopping training".format(losses_reduced.item()))
            sys.exit(1)
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
        if lr_scheduler is not None:
            lr_scheduler.step()
        metric_logger.update(loss=losses_reduced, **loss_dict_reduced)
        metric_logger.update(lr=optimizer.param_groups[0]["lr"])
    return metric_logger.loss.global_avg


@torch.no_grad()
def evaluate(model, data_loader, device):
    model.eval()
    metric_logger = utils.MetricLogger()
    found = []
    for images, targets in metric_logger.log_every(data_loader, 100, 'Test:'):
        parity, size = model(images.to(device))
        hit = (parity.argmax(1).cpu() == targets['parity'])
        err = (size.cpu() - targets['ink']).abs()
        found.extend(zip(targets['id'].tolist(), hit.tolist()))
        metric_logger.meters['acc'].update(hit.float().mean().item(), n=len(hit))
        metric_logger.meters['mae'].update(err.mean().item(), n=len(err))
    metric_logger.synchronize_between_processes()
    merged = dict(sum(utils.all_gather(found), []))
    print('%d images, parity accuracy %.4f, ink error %.4f' % (
        len(merged), metric_logger.acc.global_avg, metric_logger.mae.global_avg))
    return sum(merged.values()) / len(merged)
