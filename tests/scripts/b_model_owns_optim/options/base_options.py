import argparse
import os

import torch


class BaseOptions():
    def __init__(self):
        self.initialized = False

    def initialize(self, parser):
        parser.add_argument('--name', type=str, default='experiment', help='where to store samples and models')
        parser.add_argument('--gpu_ids', type=str, default='0', help='e.g. 0  0,1,2. use -1 for CPU')
        parser.add_argument('--checkpoints_dir', type=str, default='./checkpoints')
        parser.add_argument('--model', type=str, default='paired')
        parser.add_argument('--ngf', type=int, default=8)
        parser.add_argument('--ndf', type=int, default=8)
        parser.add_argument('--batch_size', type=int, default=20)
        parser.add_argument('--serial_batches', action='store_true', help='takes images in order')
        parser.add_argument('--num_threads', default=0, type=int)
        parser.add_argument('--max_dataset_size', type=int, default=float("inf"))
        self.initialized = True
        return parser

    def parse(self):
        parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        parser = self.initialize(parser)
        opt = parser.parse_args()
        opt.isTrain = self.isTrain

        # '0,1' -> [0, 1]; without a card everything stays on the cpu
        ids = [int(s) for s in opt.gpu_ids.split(',')]
        opt.gpu_ids = [i for i in ids if i >= 0] if torch.cuda.is_available() else []
        if len(opt.gpu_ids) > 0:
            torch.cuda.set_device(opt.gpu_ids[0])

        lines = ['----------------- Options ---------------']
        lines += ['{:>25}: {}'.format(k, v) for k, v in sorted(vars(opt).items())]
        print('\n'.join(lines))
        folder = os.path.join(opt.checkpoints_dir, opt.name)
        if not os.path.exists(folder):
            os.makedirs(folder)
        with open(os.path.join(folder, 'opt.txt'), 'wt') as f:
            f.write('\n'.join(lines))
        self.opt = opt
        return self.opt
