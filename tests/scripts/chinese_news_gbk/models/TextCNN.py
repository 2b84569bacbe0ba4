# coding: GBK
import os
import torch
import torch.nn as nn
import torch.nn.functional as F


class Config(object):
    """所有可以调的都在这里"""
    def __init__(self, dataset):
        self.model_name = 'TextCNN'
        self.data_dir = dataset + '/data'
        self.class_list = os.listdir(self.data_dir)                          # 一个文件夹一类
        self.vocab_path = dataset + '/vocab.pkl'                             # 词表
        self.save_path = dataset + '/saved_dict/' + self.model_name + '.ckpt'  # 最好的模型
        self.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

        self.dropout = 0.5
        self.require_improvement = 40       # 40批没进步就停
        self.num_classes = len(self.class_list)
        self.n_vocab = 0                    # 读完数据才知道
        self.num_epochs = 4
        self.batch_size = 32
        self.pad_size = 16                  # 标题长度，短的补，长的切
        self.learning_rate = 3e-3
        self.embed = 24                     # 字向量
        self.filter_sizes = (2, 3, 4)       # 看2、3、4个字
        self.num_filters = 12


class Model(nn.Module):
    def __init__(self, config):
        super(Model, self).__init__()
        self.embedding = nn.Embedding(config.n_vocab, config.embed, padding_idx=config.n_vocab - 1)
        self.convs = nn.ModuleList(
            [nn.Conv2d(1, config.num_filters, (k, config.embed)) for k in config.filter_sizes])
        self.dropout = nn.Dropout(config.dropout)
        self.fc = nn.Linear(config.num_filters * len(config.filter_sizes), config.num_classes)

    def conv_and_pool(self, x, conv):
        x = F.relu(conv(x)).squeeze(3)
        return F.max_pool1d(x, x.size(2)).squeeze(2)

    def forward(self, x):
        out = self.embedding(x[0]).unsqueeze(1)
        out = torch.cat([self.conv_and_pool(out, conv) for conv in self.convs], 1)
        return self.fc(self.dropout(out))
