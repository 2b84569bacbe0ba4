import numpy as np
import torch


def generate(path='traindata.pt', T=16, L=120, N=40):
    rng = np.random.RandomState(2)
    x = np.array(range(L)) + rng.randint(-4 * T, 4 * T, N).reshape(N, 1)
    data = np.sin(x / 1.0 / T).astype('float64')
    torch.save(torch.from_numpy(data), open(path, 'wb'))


if __name__ == '__main__':
    generate()
