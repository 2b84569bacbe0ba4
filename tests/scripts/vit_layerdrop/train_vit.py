import os
import sys
import time
import random
import argparse
import numpy as np
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import LinearLR, CosineAnnealingLR, SequentialLR
from torch.utils.data import DataLoader, Dataset
from sklearn.datasets import load_digits
import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot as plt
from vit import ViT


class DigitSet(Dataset):
	def __init__(self, lo, hi, tf=None):
		d = load_digits()
		self.x, self.y, self.tf = d.images[lo:hi].astype("float32") / 16, d.target[lo:hi], tf

	def __len__(self):
		return len(self.y)

	def __getitem__(self, i):
		x = self.x[i]
		if self.tf is not None:
			x = self.tf(x)
		return torch.from_numpy(np.ascontiguousarray(x))[None], int(self.y[i])


shift = lambda x: np.roll(x, (random.randint(-1, 1), random.randint(-1, 1)), axis=(0, 1))
erase = lambda x: x * (np.random.rand(*x.shape) > 0.05).astype("float32")


def build_args():
	p = argparse.ArgumentParser()
	p.add_argument("--epochs", type=int, default=10)
	p.add_argument("--bs", type=int, default=20)
	p.add_argument("--lr", type=float, default=2e-3)
	p.add_argument("--ckpt", action="store_true")
	p.add_argument("--out", default="vit_out")
	return p.parse_args()


def loop(model, dl, crit, device, opt=None, sched=None):
	"""one pass, with learning if there is an optimizer"""
	train = opt is not None
	model.train(train)
	m = {"loss": 0.0, "top1": 0, "top2": 0, "n": 0}
	ctx = torch.enable_grad() if train else torch.no_grad()
	with ctx:
		for x, y in dl:
			x, y = x.to(device), y.to(device)
			out = model(x)
			loss = crit(out, y)
			if train:
				opt.zero_grad(set_to_none=True)
				loss.backward()
				nn.utils.clip_grad_norm_(model.parameters(), 1.0)
				opt.step()
				sched.step()
			m["loss"] += loss.detach().item() * y.numel()
			top = out.topk(2, 1)[1].eq(y[:, None])
			m["top1"] += int(top[:, 0].sum())
			m["top2"] += int(top.any(1).sum())
			m["n"] += y.numel()
	return {k: m[k] / m["n"] for k in ("loss", "top1", "top2")}


if __name__ == "__main__":
	args = build_args()
	device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
	if not os.path.isdir(args.out):
		os.mkdir(args.out)
	tr = DataLoader(DigitSet(0, 1280, lambda x: erase(shift(x))), args.bs, shuffle=True, drop_last=True, num_workers=0)
	te = DataLoader(DigitSet(1280, 1797), 64, shuffle=False, num_workers=0)

	model = ViT(ckpt=args.ckpt).to(device)
	print("parameters: %.1fk" % (sum(p.numel() for p in model.parameters()) / 1e3))
	crit = nn.CrossEntropyLoss()
	opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
	total = args.epochs * len(tr)
	warm = max(1, total // 10)
	sched = SequentialLR(opt, [LinearLR(opt, 0.1, total_iters=warm), CosineAnnealingLR(opt, total - warm)], milestones=[warm])

	hist = {"train": [], "test": []}
	for ep in range(args.epochs):
		t = time.time()
		a = loop(model, tr, crit, device, opt, sched)
		b = loop(model, te, crit, device)
		hist["train"].append(a); hist["test"].append(b)
		print("epoch %d\ttrain %s\ttest %s\t%.1fs" % (
			ep, {k: round(v, 4) for k, v in a.items()}, {k: round(v, 4) for k, v in b.items()}, time.time() - t))
		if b["top1"] >= max(h["top1"] for h in hist["test"]):
			torch.save({"model": model.state_dict(), "epoch": ep, "args": vars(args)}, args.out + "/best.pt")

	for k in ("loss", "top1"):
		plt.figure()
		for part in hist:
			plt.plot([h[k] for h in hist[part]], label=part)
		plt.legend()
		plt.savefig(args.out + "/" + k + ".png")
		plt.close()
