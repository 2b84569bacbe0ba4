# coding: UTF-8
import torch
import torch.nn as nn
import torch.nn.functional as F


class Config(object):
    def __init__(self, dataset):
        self.model_name = 'TextCNN'
        self.data_path = dataset
        self.class_list = ['财经', '体育', '娱乐', '教育', '科技']
        self.save_path = dataset + '/' + self.model_name + '.ckpt'
        self.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        self.dropout = 0.4
        self.require_improvement = 50      # 超过50个batch没提升就提前结束
        self.num_classes = len(self.class_list)
        self.n_vocab = 0
        self.num_epochs = 20
        self.batch_size = 32
        self.pad_size = 16
        self.learning_rate = 1.5e-2
        self.embed = 24
        self.filter_sizes = (1, 2, 3)
        self.num_filters = 16


class Model(nn.Module):
    def __init__(self, config):
        super(Model, self).__init__()
        self.embedding = nn.Embedding(config.n_vocab, config.embed, padding_idx=0)
        self.convs = nn.ModuleList([nn.Conv1d(config.embed, config.num_filters, k, padding=k // 2) for k in config.filter_sizes])
        self.dropout = nn.Dropout(config.dropout)
        self.fc = nn.Linear(config.num_filters * len(config.filter_sizes), config.num_classes)

    def forward(self, x):
        ids, seq_len = x
        h = self.embedding(ids).transpose(1, 2)
        h = torch.cat([F.relu(c(h)).max(2)[0] for c in self.convs], 1)
        return self.fc(self.dropout(h))
