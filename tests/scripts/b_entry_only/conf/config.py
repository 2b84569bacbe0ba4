# -*- coding: utf-8 -*-
import torch


class DataConfig:
    window = 64
    n_train = 600
    n_test = 157
    class_names = ['正常', '内圈故障', '外圈故障', '滚珠故障']


class TrainConfig:
    batch_size = 32
    test_batch_size = 50
    epochs = 6
    lr = 1e-3
    model_dir = 'checkpoints'
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
