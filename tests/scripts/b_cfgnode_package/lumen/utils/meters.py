from collections import defaultdict


class Metric(object):
    """reset / update / compute"""

    def reset(self):
        raise NotImplementedError


class Accuracy(Metric):
    def __init__(self):
        self.reset()

    def reset(self):
        self._num_correct = 0
        self._num_examples = 0

    def update(self, output):
        y_pred, y = output
        self._num_correct += (y_pred.argmax(dim=1) == y).sum().item()
        self._num_examples += y.shape[0]

    def compute(self):
        if self._num_examples == 0:
            raise ZeroDivisionError('no examples yet')
        return self._num_correct / self._num_examples


class Loss(Metric):
    def __init__(self, fn):
        self.fn = fn
        self.reset()

    def reset(self):
        self._sum, self._n = 0, 0

    def update(self, output):
        y_pred, y = output
        self._sum += self.fn(y_pred, y).item() * len(y)
        self._n += len(y)

    def compute(self):
        return self._sum / self._n


class Recall(Metric):
    def __init__(self):
        self.reset()

    def reset(self):
        self.hit, self.all = defaultdict(int), defaultdict(int)

    def update(self, output):
        y_pred, y = output
        for p, t in zip(y_pred.argmax(1).tolist(), y.tolist()):
            self.all[t] += 1
            self.hit[t] += int(p == t)

    def compute(self):
        return sum(self.hit[t] / self.all[t] for t in self.all) / len(self.all)
