import argparse
import os

from data_loader import get_loader
from solver import Solver


def main(config):
    # workspace
    for d in (config.log_path, config.model_path, config.sample_path):
        if not os.path.exists(d):
            os.makedirs(d)

    loader = get_loader(config.image_size, config.batch_size, mode=config.mode)
    solver = Solver(config, loader)
    if config.mode == 'train':
        solver.train()
    elif config.mode == 'sample':
        solver.sample()
    else:
        raise NotImplementedError(config.mode)


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    # model
    parser.add_argument('--image_size', type=int, default=16)
    parser.add_argument('--z_dim', type=int, default=16)
    parser.add_argument('--n_attr', type=int, default=3)
    parser.add_argument('--g_conv_dim', type=int, default=16)
    parser.add_argument('--d_conv_dim', type=int, default=16)
    # training
    parser.add_argument('--total_step', type=int, default=100000)
    parser.add_argument('--decay_from', type=float, default=0.5, help='part of training after which lr goes to 0')
    parser.add_argument('--d_steps', type=int, default=3)
    parser.add_argument('--batch_size', type=int, default=16)
    parser.add_argument('--lr', type=float, default=2e-4)
    parser.add_argument('--beta1', type=float, default=0.5)
    parser.add_argument('--beta2', type=float, default=0.9)
    parser.add_argument('--lambda_gp', type=float, default=10)
    parser.add_argument('--lambda_attr', type=float, default=1.0)
    parser.add_argument('--pretrained_step', type=int, default=None)
    # misc
    parser.add_argument('--mode', type=str, default='train', choices=['train', 'sample'])
    parser.add_argument('--log_path', type=str, default='./exp/logs')
    parser.add_argument('--model_path', type=str, default='./exp/models')
    parser.add_argument('--sample_path', type=str, default='./exp/samples')
    parser.add_argument('--log_step', type=int, default=10)
    parser.add_argument('--sample_step', type=int, default=500)
    parser.add_argument('--save_step', type=int, default=5000)
    config = parser.parse_args()
    print(config)
    main(config)
