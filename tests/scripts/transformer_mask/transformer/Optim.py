'''Adam whose learning rate rises for a while and then falls with the root of the steps'''


class ScheduledOptim():

    def __init__(self, optimizer, lr_mul, d_model, n_warmup_steps):
        self._optimizer = optimizer
        self.lr_mul = lr_mul
        self.d_model = d_model
        self.n_warmup_steps = n_warmup_steps
        self.n_steps = 0

    def step_and_update_lr(self):
        self._update_learning_rate()
        self._optimizer.step()

    def zero_grad(self):
        self._optimizer.zero_grad()

    def _update_learning_rate(self):
        self.n_steps += 1
        scale = min(self.n_steps ** -0.5, self.n_steps * self.n_warmup_steps ** -1.5)
        for group in self._optimizer.param_groups:
            group['lr'] = self.lr_mul * self.d_model ** -0.5 * scale
