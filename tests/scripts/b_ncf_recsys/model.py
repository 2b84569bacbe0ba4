import torch
import torch.nn as nn


class NeuMF(nn.Module):
    def __init__(self, user_num, item_num, factor_num, num_layers, dropout, kind):
        super(NeuMF, self).__init__()
        self.kind = kind
        wide = factor_num * 2 ** (num_layers - 1)
        self.user_gmf = nn.Embedding(user_num, factor_num)
        self.item_gmf = nn.Embedding(item_num, factor_num)
        self.user_mlp = nn.Embedding(user_num, wide)
        self.item_mlp = nn.Embedding(item_num, wide)
        layers = []
        for i in range(num_layers):
            n = factor_num * 2 ** (num_layers - i)
            layers += [nn.Dropout(p=dropout), nn.Linear(n, n // 2), nn.ReLU()]
        self.mlp = nn.Sequential(*layers)
        self.predict = nn.Linear(factor_num * (2 if kind == 'both' else 1), 1)
        for m in self.modules():
            if isinstance(m, nn.Embedding):
                nn.init.normal_(m.weight, std=0.05)

    def forward(self, user, item):
        parts = []
        if self.kind != 'MLP':
            parts.append(self.user_gmf(user) * self.item_gmf(item))
        if self.kind != 'GMF':
            parts.append(self.mlp(torch.cat((self.user_mlp(user), self.item_mlp(item)), -1)))
        return self.predict(torch.cat(parts, -1)).view(-1)
