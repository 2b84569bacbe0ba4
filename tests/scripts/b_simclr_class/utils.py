import json
import os
import shutil

import torch


def save_checkpoint(state, is_best, filename='checkpoint.pth.tar'):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, 'model_best.pth.tar')


def save_config_file(folder, args):
    if not os.path.exists(folder):
        os.makedirs(folder)
    with open(os.path.join(folder, 'config.json'), 'w') as f:
        json.dump({k: str(v) for k, v in vars(args).items()}, f, indent=1)


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1)
        hit = pred.eq(target[:, None])
        return [hit[:, :k].any(1).float().sum(0, keepdim=True) * 100. / len(target) for k in topk]
