import math
import numpy as np


class CartPole:
    """a pole on a cart, in plain numpy"""
    def __init__(self, seed=None):
        self.rng = np.random.RandomState(seed)

    def reset(self):
        self.s = self.rng.uniform(-0.05, 0.05, 4)
        self.t = 0
        return self.s.astype(np.float32)

    def step(self, action):
        x, v, th, w = self.s
        force = 10.0 if action == 1 else -10.0
        temp = (force + 0.05 * w ** 2 * math.sin(th)) / 1.1
        acc_th = (9.8 * math.sin(th) - math.cos(th) * temp) / (0.5 * (4.0 / 3 - 0.1 * math.cos(th) ** 2 / 1.1))
        acc = temp - 0.05 * acc_th * math.cos(th) / 1.1
        self.s = np.array([x + 0.02 * v, v + 0.02 * acc, th + 0.02 * w, w + 0.02 * acc_th])
        self.t += 1
        done = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.2095 or self.t >= 200
        return self.s.astype(np.float32), 1.0, bool(done), {}
