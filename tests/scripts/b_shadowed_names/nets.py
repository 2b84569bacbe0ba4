from torch.nn import *
import torch.nn.functional as F

class net(Module):
    def __init__(self, i, o):
        super().__init__()
        self.l1 = Linear(i, 60); self.l2 = Linear(60, 60); self.out = Linear(60, o)
        self.p = .15
    def forward(self, input):
        x = F.relu(self.l1(input)); x = F.dropout(F.relu(self.l2(x)), self.p, self.training)
        return self.out(x)

def accuracy(out, y): return float((out.argmax(1) == y).sum())
