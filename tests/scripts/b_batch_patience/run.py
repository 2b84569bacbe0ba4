# coding: UTF-8
import argparse
import time
from importlib import import_module

import numpy as np
import torch

from train_eval import init_network, train
from utils import build_dataset, build_iterator, elapsed

parser = argparse.ArgumentParser(description='短文本分类')
parser.add_argument('--model', type=str, required=True, help='TextCNN 或 FastText')
args = parser.parse_args()

if __name__ == '__main__':
    model_name = args.model
    x = import_module('models.' + model_name)
    config = x.Config('data')
    np.random.seed(1)
    torch.manual_seed(1)
    torch.cuda.manual_seed_all(1)
    torch.backends.cudnn.deterministic = True  # 保证每次结果一样

    start_time = time.time()
    print("加载数据...")
    vocab, train_data, dev_data, test_data = build_dataset(config)
    train_iter = build_iterator(train_data, config)
    dev_iter = build_iterator(dev_data, config)
    test_iter = build_iterator(test_data, config)
    print("用时:", elapsed(start_time))

    config.n_vocab = len(vocab)
    model = x.Model(config).to(config.device)
    init_network(model)
    print(model.parameters)
    train(config, model, train_iter, dev_iter, test_iter)
