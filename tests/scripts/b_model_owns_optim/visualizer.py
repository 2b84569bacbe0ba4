import os
import time

import numpy as np
from PIL import Image


class Visualizer():
    def __init__(self, opt):
        self.img_dir = os.path.join(opt.checkpoints_dir, opt.name, 'images')
        if not os.path.exists(self.img_dir):
            os.makedirs(self.img_dir)
        self.log_name = os.path.join(opt.checkpoints_dir, opt.name, 'loss_log.txt')
        with open(self.log_name, "a") as f:
            f.write('=========== Training Loss (%s) ===========\n' % time.strftime("%c"))

    def print_losses(self, epoch, it, losses, t):
        message = '(epoch: %d, iters: %d, time: %.3f) ' % (epoch, it, t)
        for k, v in losses.items():
            message += '%s: %.3f ' % (k, v)
        print(message)
        with open(self.log_name, "a") as f:
            f.write('%s\n' % message)

    def save_visuals(self, visuals, epoch):
        for label, image in visuals.items():
            arr = image[0, 0].detach().cpu().float().numpy()
            arr = ((arr + 1) / 2 * 255.0).clip(0, 255).astype(np.uint8)
            Image.fromarray(arr).resize((64, 64)).save(os.path.join(self.img_dir, 'epoch%.3d_%s.png' % (epoch, label)))
