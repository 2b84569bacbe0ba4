import torch
import torch.nn as nn
import torch.nn.functional as F


class TNet(nn.Module):
    def __init__(self, k=3):
        super(TNet, self).__init__()
        self.k = k
        self.conv = nn.Conv1d(k, 32, 1)
        self.bn = nn.BatchNorm1d(32)
        self.fc = nn.Linear(32, k * k)
        nn.init.zeros_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x))).max(2)[0]
        return self.fc(x).view(-1, self.k, self.k) + torch.eye(self.k, device=x.device)


class get_model(nn.Module):
    def __init__(self, k=4):
        super(get_model, self).__init__()
        self.tnet = TNet(3)
        self.fstn = TNet(24)
        self.conv1 = nn.Conv1d(3, 24, 1)
        self.conv2 = nn.Conv1d(24, 64, 1)
        self.bn1, self.bn2 = nn.BatchNorm1d(24), nn.BatchNorm1d(64)
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, k)
        self.dropout = nn.Dropout(p=0.3)

    def forward(self, x):
        x = torch.bmm(x.transpose(2, 1), self.tnet(x)).transpose(2, 1)
        x = F.relu(self.bn1(self.conv1(x)))
        trans_feat = self.fstn(x)
        x = torch.bmm(x.transpose(2, 1), trans_feat).transpose(2, 1)
        x = self.bn2(self.conv2(x)).max(2)[0]
        x = self.fc2(self.dropout(F.relu(self.fc1(x))))
        return F.log_softmax(x, dim=1), trans_feat


class get_loss(nn.Module):
    def __init__(self, scale=0.001):
        super(get_loss, self).__init__()
        self.scale = scale

    def forward(self, pred, target, trans_feat):
        k = trans_feat.size(1)
        eye = torch.eye(k, device=trans_feat.device)
        reg = torch.mean(torch.norm(torch.bmm(trans_feat, trans_feat.transpose(2, 1)) - eye, dim=(1, 2)))
        return F.nll_loss(pred, target) + reg * self.scale
