# coding: UTF-8
import torch
import torch.nn as nn

from .TextCNN import Config as _Base


class Config(_Base):
    def __init__(self, dataset):
        super(Config, self).__init__(dataset)
        self.model_name = 'FastText'
        self.save_path = dataset + '/' + self.model_name + '.ckpt'


class Model(nn.Module):
    def __init__(self, config):
        super(Model, self).__init__()
        self.embedding = nn.Embedding(config.n_vocab, config.embed, padding_idx=0)
        self.fc = nn.Linear(config.embed, config.num_classes)

    def forward(self, x):
        h = self.embedding(x[0])
        return self.fc(h.sum(1) / x[1].unsqueeze(1).float())
