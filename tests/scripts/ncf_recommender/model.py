import torch
import torch.nn as nn


class NCF(nn.Module):
    def __init__(self, user_num, item_num, factor_num, num_layers, dropout, model):
        super(NCF, self).__init__()
        self.model = model
        self.gmf_user = nn.Embedding(user_num, factor_num)
        self.gmf_item = nn.Embedding(item_num, factor_num)
        wide = factor_num * 2 ** (num_layers - 1)
        self.mlp_user = nn.Embedding(user_num, wide)
        self.mlp_item = nn.Embedding(item_num, wide)
        layers = []
        for i in range(num_layers):
            n = factor_num * 2 ** (num_layers - i)
            layers += [nn.Dropout(p=dropout), nn.Linear(n, n // 2), nn.ReLU()]
        self.mlp = nn.Sequential(*layers)
        self.predict = nn.Linear(factor_num * (1 if model in ('MLP', 'GMF') else 2), 1)
        for m in self.modules():
            if isinstance(m, nn.Embedding):
                nn.init.normal_(m.weight, std=0.01)

    def forward(self, user, item):
        parts = []
        if self.model != 'MLP':
            parts.append(self.gmf_user(user) * self.gmf_item(item))
        if self.model != 'GMF':
            parts.append(self.mlp(torch.cat((self.mlp_user(user), self.mlp_item(item)), -1)))
        return self.predict(torch.cat(parts, -1)).view(-1)
