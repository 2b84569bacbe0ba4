# encoding: utf-8
import argparse
import os
import sys
from os import mkdir

import torch

sys.path.append('.')
from lumen.config import cfg
from lumen.data import make_data_loader
from lumen.engine.trainer import do_train
from lumen.modeling import build_model
from lumen.solver import make_lr_scheduler, make_optimizer
from lumen.utils.logger import setup_logger


def train(cfg):
    model = build_model(cfg)
    device = cfg.MODEL.DEVICE
    if device == 'cuda' and not torch.cuda.is_available():
        device = 'cpu'
    model.to(device)

    train_loader, val_loader = make_data_loader(cfg, is_train=True), make_data_loader(cfg, is_train=False)
    optimizer = make_optimizer(cfg, model)
    scheduler = make_lr_scheduler(cfg, optimizer, len(train_loader))
    do_train(cfg, model, train_loader, val_loader, optimizer, scheduler, torch.nn.functional.cross_entropy, device)


def main():
    parser = argparse.ArgumentParser(description="Digits training")
    parser.add_argument("--config_file", default="", help="path to config file", type=str)
    parser.add_argument("opts", help="KEY VALUE pairs", default=None, nargs=argparse.REMAINDER)
    args = parser.parse_args()

    if args.config_file != "":
        cfg.merge_from_file(args.config_file)
    cfg.merge_from_list(args.opts)
    cfg.freeze()

    output_dir = cfg.OUTPUT_DIR
    if output_dir and not os.path.exists(output_dir):
        os.makedirs(output_dir)

    logger = setup_logger("lumen", output_dir)
    logger.info(args)
    logger.info("Running with config:\n{}".format(cfg))
    train(cfg)


if __name__ == '__main__':
    main()
