# -*- coding: gbk -*-
import time
import torch
import numpy as np
from train_eval import train, init_network
from importlib import import_module
import argparse
from utils import build_dataset, build_iterator, get_time_dif, make_news

parser = argparse.ArgumentParser(description='中文新闻分类')
parser.add_argument('--model', type=str, required=True, help='models里的文件名')
parser.add_argument('--word', default=False, type=bool, help='按词还是按字')
args = parser.parse_args()


if __name__ == '__main__':
    dataset = 'THUNews'  # 数据集
    make_news(dataset)

    x = import_module('models.' + args.model)
    config = x.Config(dataset)
    np.random.seed(1)
    torch.manual_seed(1)
    torch.cuda.manual_seed_all(1)
    torch.backends.cudnn.deterministic = True  # 结果可以重复

    start_time = time.time()
    print("读数据")
    vocab, train_data, dev_data, test_data = build_dataset(config, args.word)
    train_iter = build_iterator(train_data, config)
    dev_iter = build_iterator(dev_data, config)
    test_iter = build_iterator(test_data, config)
    print("用时：", get_time_dif(start_time))

    # 训练
    config.n_vocab = len(vocab)
    model = x.Model(config).to(config.device)
    init_network(model)
    print(model.parameters)
    train(config, model, train_iter, dev_iter, test_iter)
