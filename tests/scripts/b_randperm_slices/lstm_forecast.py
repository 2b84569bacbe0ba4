# electricity load of a made-up town, next hour from the last 24
import argparse
import math

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--hours", type=int, default=1500)
ap.add_argument("--window", type=int, default=24)
ap.add_argument("--hidden", type=int, default=24)
ap.add_argument("--bs", type=int, default=64)
ap.add_argument("--epochs", type=int, default=7)
ap.add_argument("--lr", type=float, default=8e-3)
ap.add_argument("--cuda", default=True, type=bool)
args = ap.parse_args()
args.cuda = args.cuda and torch.cuda.is_available()

torch.manual_seed(2021)
np.random.seed(2021)


def make_series(n):
	t = np.arange(n)
	daily = 30 * np.sin(2 * math.pi * t / 24) + 12 * np.sin(4 * math.pi * t / 24 + 1)
	weekly = np.where((t // 24) % 7 >= 5, -18, 0)
	noise = np.zeros(n)
	for i in range(1, n):
		noise[i] = 0.7 * noise[i - 1] + np.random.randn() * 2
	return 120 + daily + weekly + noise


def windows(s, w):
	x = np.stack([s[i:i + w] for i in range(len(s) - w)])
	return torch.tensor(x, dtype=torch.float32).unsqueeze(-1), torch.tensor(s[w:], dtype=torch.float32)


class Forecaster(nn.Module):
	def __init__(self, hidden):
		super().__init__()
		self.hidden = hidden
		self.lstm = nn.LSTM(1, hidden, batch_first=True)
		self.lin = nn.Linear(hidden, 1)

	def init_hidden(self, bs):
		w = next(self.parameters()).data
		return w.new(1, bs, self.hidden).zero_(), w.new(1, bs, self.hidden).zero_()

	def forward(self, x, h):
		out, h = self.lstm(x, h)
		return self.lin(out[:, -1]).squeeze(-1), h


series = make_series(args.hours)
mean, std = series[:1000].mean(), series[:1000].std()
X, Y = windows((series - mean) / std, args.window)
cut1, cut2 = 1000, 1200
splits = {
	"train": (X[:cut1], Y[:cut1]),
	"valid": (X[cut1:cut2], Y[cut1:cut2]),
	"test": (X[cut2:], Y[cut2:]),
}
if args.cuda:
	splits = {k: (a.cuda(), b.cuda()) for k, (a, b) in splits.items()}

model = Forecaster(args.hidden)
if args.cuda:
	model.cuda()
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)


def evaluate(name, keep=False):
	x, y = splits[name]
	if len(x) == 0:
		return None
	model.eval()
	abs_sum, pct_sum, sq_sum, n = 0.0, 0.0, 0.0, 0
	preds = []
	with torch.no_grad():
		for i in range(0, x.size(0), args.bs):
			xb, yb = x[i:i + args.bs], y[i:i + args.bs]
			p, _ = model(xb, model.init_hidden(xb.size(0)))
			real, guess = yb * std + mean, p * std + mean
			abs_sum += (real - guess).abs().sum().item()
			pct_sum += ((real - guess).abs() / real).sum().item()
			sq_sum += ((p - yb) ** 2).sum().item()
			n += len(yb)
			if keep:
				preds.append(guess.cpu())
	res = {"mae": abs_sum / n, "mape": 100 * pct_sum / n, "mse": sq_sum / n}
	if keep:
		res["preds"] = torch.cat(preds).numpy()
	return res


best = float("inf")
xtr, ytr = splits["train"]
for epoch in range(args.epochs):
	model.train()
	perm = torch.randperm(xtr.size(0))
	epoch_loss, batches = 0.0, 0
	for i in range(0, xtr.size(0), args.bs):
		ind = perm[i:i + args.bs]
		xb, yb = xtr[ind], ytr[ind]
		optimizer.zero_grad()
		p, _ = model(xb, model.init_hidden(len(xb)))
		loss = criterion(p, yb)
		loss.backward()
		nn.utils.clip_grad_norm_(model.parameters(), 1.0)
		optimizer.step()
		epoch_loss += loss.item()
		batches += 1
	v = evaluate("valid")
	plateau.step(v["mse"])
	print("epoch {:d} | train {:.4f} | valid mse {:.4f} mae {:.2f} MW mape {:.2f}% | lr {:g}".format(
		epoch, epoch_loss / batches, v["mse"], v["mae"], v["mape"], optimizer.param_groups[0]["lr"]))
	if v["mse"] < best:
		best = v["mse"]
		with open("best_lstm.pt", "wb") as f:
			torch.save(model, f)

with open("best_lstm.pt", "rb") as f:
	model = torch.load(f, weights_only=False)
r = evaluate("test", keep=True)
print("test mae {:.2f} MW  mape {:.2f}%".format(r["mae"], r["mape"]))

plt.figure(figsize=(9, 3))
plt.plot(series[cut2 + args.window:], label="load")
plt.plot(r["preds"], label="forecast")
plt.legend()
plt.tight_layout()
plt.savefig("forecast.png")
