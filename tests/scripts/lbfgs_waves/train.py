from __future__ import print_function
import argparse
import os
import torch
import torch.nn as nn
import torch.optim as optim
import numpy as np
import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt

from generate_sine_wave import generate


class Waves(nn.Module):
    def __init__(self, size=16):
        super(Waves, self).__init__()
        self.size = size
        self.cell1 = nn.LSTMCell(1, size)
        self.cell2 = nn.LSTMCell(size, size)
        self.linear = nn.Linear(size, 1)

    def forward(self, input, future=0):
        outputs = []
        h1, c1, h2, c2 = (torch.zeros(input.size(0), self.size, dtype=torch.double, device=input.device)
                          for _ in range(4))
        for x in input.split(1, dim=1):
            h1, c1 = self.cell1(x, (h1, c1))
            h2, c2 = self.cell2(h1, (h2, c2))
            output = self.linear(h2)
            outputs += [output]
        for i in range(future):  # feed back what it said
            h1, c1 = self.cell1(output, (h1, c1))
            h2, c2 = self.cell2(h1, (h2, c2))
            output = self.linear(h2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--steps', type=int, default=15, help='steps to run')
    opt = parser.parse_args()
    # set random seed to 0
    np.random.seed(0)
    torch.manual_seed(0)
    # load data and make training set
    if not os.path.exists('traindata.pt'):
        generate()
    data = torch.load('traindata.pt')
    input = data[3:, :-1]
    target = data[3:, 1:]
    test_input = data[:3, :-1]
    test_target = data[:3, 1:]
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    input, target, test_input, test_target = (t.to(device) for t in (input, target, test_input, test_target))

    seq = Waves()
    seq.double()
    seq.to(device)
    criterion = nn.MSELoss()
    # LBFGS because the whole set fits into memory
    optimizer = optim.LBFGS(seq.parameters(), lr=0.8, max_iter=6)
    for i in range(opt.steps):
        print('STEP: ', i)

        def closure():
            optimizer.zero_grad()
            out = seq(input)
            loss = criterion(out, target)
            print('loss:', loss.item())
            loss.backward()
            return loss
        optimizer.step(closure)

        # no gradient for the prediction
        with torch.no_grad():
            future = 60
            pred = seq(test_input, future=future)
            loss = criterion(pred[:, :-future], test_target)
            print('test loss:', loss.item())
            y = pred.detach().cpu().numpy()

        plt.figure(figsize=(10, 5))
        plt.title('dashed: what it makes up')
        n = input.size(1)
        for yi, color in zip(y, 'rgb'):
            plt.plot(np.arange(n), yi[:n], color, linewidth=2.0)
            plt.plot(np.arange(n, n + future), yi[n:], color + ':', linewidth=2.0)
        plt.savefig('predict%d.pdf' % i)
        plt.close()
