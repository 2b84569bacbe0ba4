import argparse

import numpy as np
import torch

import data_loader.data_loaders as module_data
import model.loss as module_loss
import model.metric as module_metric
import model.model as module_arch
from parse_config import ConfigParser
from trainer import Trainer
from utils import prepare_device

SEED = 123
torch.manual_seed(SEED)
np.random.seed(SEED)
torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = False


def main(config):
    logger = config.get_logger('train')
    data_loader = config.init_obj('data_loader', module_data)
    loaders = data_loader, data_loader.split_validation()

    model = config.init_obj('arch', module_arch)
    logger.info(model)
    device, device_ids = prepare_device(config['n_gpu'])
    model = model.to(device)
    if len(device_ids) > 1:
        model = torch.nn.DataParallel(model, device_ids=device_ids)

    criterion = getattr(module_loss, config['loss'])
    metrics = [getattr(module_metric, name) for name in config['metrics']]
    optimizer = config.init_obj('optimizer', torch.optim, filter(lambda p: p.requires_grad, model.parameters()))
    lr_scheduler = config.init_obj('lr_scheduler', torch.optim.lr_scheduler, optimizer)
    Trainer(model, criterion, metrics, optimizer, config, device, loaders, lr_scheduler).train()


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-c', '--config', required=True, type=str)
    parser.add_argument('-r', '--resume', default=None, type=str)
    # overrides: option -> place in the config
    main(ConfigParser.from_args(parser, {
        '--lr': (float, 'optimizer;args;lr'),
        '--bs': (int, 'data_loader;args;batch_size'),
    }))
