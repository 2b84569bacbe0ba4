import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, params):
        super(Net, self).__init__()
        self.fc1 = nn.Linear(64, params.width)
        self.bn1 = nn.BatchNorm1d(params.width)
        self.fc2 = nn.Linear(params.width, 10)
        self.dropout_rate = params.dropout_rate

    def forward(self, s):
        s = s.view(s.shape[0], -1)
        s = F.dropout(F.relu(self.bn1(self.fc1(s))), p=self.dropout_rate, training=self.training)
        return self.fc2(s)


def loss_fn(outputs, labels):
    return nn.CrossEntropyLoss()(outputs, labels)


def loss_fn_kd(outputs, labels, teacher_outputs, params):
    T, alpha = params.temperature, params.alpha
    soft = nn.KLDivLoss(reduction='batchmean')(F.log_softmax(outputs / T, dim=1), F.softmax(teacher_outputs / T, dim=1))
    return alpha * T * T * soft + (1. - alpha) * F.cross_entropy(outputs, labels)


def accuracy(outputs, labels):
    return (outputs.argmax(1) == labels).float().mean().item()


metrics = {'accuracy': accuracy}
