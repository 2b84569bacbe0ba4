class StepLR:
    def __init__(self, optimizer, learning_rate, total_epochs):
        self.optimizer = optimizer
        self.total_epochs = total_epochs
        self.base = learning_rate

    def __call__(self, epoch):
        if epoch < self.total_epochs * 4 / 10:
            lr = self.base
        elif epoch < self.total_epochs * 8 / 10:
            lr = self.base * 0.2
        else:
            lr = self.base * 0.2 ** 2
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def lr(self):
        return self.optimizer.param_groups[0]["lr"]
