import time


class Log:
    """one line an epoch: train on the left, validation on the right"""

    def __init__(self, log_each):
        self.log_each = log_each
        self.best = 0.0
        self.epoch = -1
        self.is_train = False

    def train(self, len_dataset):
        if self.epoch < 0:
            print("  ep |   loss |    acc |     lr | elapsed |   loss |    acc |")
        else:
            self.flush()
        self.epoch += 1
        self.is_train = True
        self._reset(len_dataset)

    def eval(self, len_dataset):
        loss, acc = self.state["loss"] / self.state["n"], self.state["hits"] / self.state["n"]
        print(f"\r{self.epoch:4d} | {loss:6.4f} | {acc:6.2%} | {self.last_lr:6.4f} | {time.time() - self.start:6.2f}s |", end="")
        self.is_train = False
        self._reset(len_dataset)

    def __call__(self, model, loss, correct, lr=None):
        self.state["loss"] += loss.sum().item()
        self.state["hits"] += correct.sum().item()
        self.state["n"] += loss.size(0)
        self.step += 1
        if self.is_train:
            self.last_lr = lr
            if self.step % self.log_each == 0:
                print(f"\r{self.epoch:4d} | {100 * self.step / self.len_dataset:3.0f}%", end="", flush=True)

    def flush(self):
        loss, acc = self.state["loss"] / self.state["n"], self.state["hits"] / self.state["n"]
        print(f" {loss:6.4f} | {acc:6.2%} |", flush=True)
        if acc > self.best:
            self.best = acc

    def _reset(self, len_dataset):
        self.start = time.time()
        self.step = 0
        self.len_dataset = len_dataset
        self.state = {"loss": 0.0, "hits": 0.0, "n": 0.0}
