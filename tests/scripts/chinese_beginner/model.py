import torch
from torch import nn


# 搭建神经网络
class MyNet(nn.Module):
    def __init__(self):
        super(MyNet, self).__init__()
        self.model = nn.Sequential(
            nn.Conv2d(3, 16, 5, 1, 2),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 16, 5, 1, 2),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * 8 * 8, 64),
            nn.Linear(64, 10)
        )

    def forward(self, x):
        x = self.model(x)
        return x


if __name__ == '__main__':
    net = MyNet()
    input = torch.ones((64, 3, 32, 32))
    output = net(input)
    print(output.shape)
