"""
damped oscillator  u'' + 2*d*u' + w0^2*u = 0,  u(0)=1, u'(0)=0
The network sees ten noisy observations and the equation, w0 is known.
"""
import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(123)
np.random.seed(123)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def exact(d, w0, t):
    w = np.sqrt(w0 ** 2 - d ** 2)
    phi = np.arctan(-d / w)
    A = 1 / (2 * np.cos(phi))
    return torch.exp(-d * t) * 2 * A * torch.cos(phi + w * t)


class FCN(nn.Module):
    def __init__(self, n_in, n_out, n_hidden, n_layers):
        super().__init__()
        act = nn.Tanh
        self.fcs = nn.Sequential(nn.Linear(n_in, n_hidden), act())
        self.fch = nn.Sequential(*[nn.Sequential(nn.Linear(n_hidden, n_hidden), act()) for _ in range(n_layers - 1)])
        self.fce = nn.Linear(n_hidden, n_out)

    def forward(self, x):
        return self.fce(self.fch(self.fcs(x)))


d, w0 = 1.5, 8.0
t = torch.linspace(0, 1, 300).view(-1, 1).to(device)
u = exact(d, w0, t)
t_data = t[0:180:18]
u_data = u[0:180:18] + 0.01 * torch.randn(10, 1).to(device)
t_phys = torch.linspace(0, 1, 60).view(-1, 1).to(device).requires_grad_(True)

pinn = FCN(1, 1, 32, 3).to(device)


def physics_residual(net):
    v = net(t_phys)
    dv = torch.autograd.grad(v, t_phys, torch.ones_like(v), create_graph=True)[0]
    d2v = torch.autograd.grad(dv, t_phys, torch.ones_like(dv), create_graph=True)[0]
    return d2v + 2 * d * dv + w0 ** 2 * v


def total_loss(net):
    loss1 = torch.mean((net(t_data) - u_data) ** 2)
    loss2 = 1e-4 * torch.mean(physics_residual(net) ** 2)
    return loss1 + loss2, loss1, loss2


optimizer = torch.optim.Adam(pinn.parameters(), lr=3e-3)
for i in range(600):
    optimizer.zero_grad()
    loss, l1, l2 = total_loss(pinn)
    loss.backward()
    optimizer.step()
    if (i + 1) % 150 == 0:
        with torch.no_grad():
            err = ((pinn(t) - u) ** 2).mean().sqrt().item()
        print(f"adam {i + 1:4d}  loss {loss.item():.2e}  data {l1.item():.2e}  physics {l2.item():.2e}  rmse {err:.4f}")

# polish
lbfgs = torch.optim.LBFGS(pinn.parameters(), lr=0.5, max_iter=20, history_size=20, line_search_fn="strong_wolfe")
calls = 0


def closure():
    global calls
    calls += 1
    lbfgs.zero_grad()
    loss, _, _ = total_loss(pinn)
    loss.backward()
    return loss


for k in range(5):
    l = lbfgs.step(closure)
    print(f"lbfgs {k}  loss {float(l):.2e}  ({calls} closure calls)")

with torch.no_grad():
    pred = pinn(t)
print("final rmse %.5f, worst %.5f" % (((pred - u) ** 2).mean().sqrt().item(), (pred - u).abs().max().item()))
np.savetxt("solution.txt", np.hstack([t.cpu().numpy(), u.cpu().numpy(), pred.cpu().numpy()]), fmt="%.6f")
torch.save(pinn.state_dict(), "pinn.pt")
