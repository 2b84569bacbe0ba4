import random
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
	def __init__(self, dim, heads, drop=0.0):
		super().__init__()
		self.n1 = nn.LayerNorm(dim)
		self.attn = nn.MultiheadAttention(dim, heads, dropout=drop, batch_first=True)
		self.n2 = nn.LayerNorm(dim)
		self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

	def forward(self, x):
		y = self.n1(x)
		x = x + self.attn(y, y, y, need_weights=False)[0]
		return x + self.ff(self.n2(x))


class ViT(nn.Module):
	def __init__(self, img=8, patch=2, dim=32, depth=2, heads=4, n_classes=10, layerdrop=0.1, ckpt=False):
		super().__init__()
		self.patch = nn.Conv2d(1, dim, patch, patch)
		n = (img // patch) ** 2
		self.cls = nn.Parameter(torch.zeros(1, 1, dim))
		self.pos = nn.Parameter(torch.randn(1, n + 1, dim) * 0.5)
		self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
		self.norm = nn.LayerNorm(dim)
		self.head = nn.Linear(dim, n_classes)
		self.layerdrop = layerdrop
		self.ckpt = ckpt
		self.decoder = nn.Linear(dim, 4)	# for pre-training, not used here

	def forward(self, x):
		x = self.patch(x).flatten(2).transpose(1, 2)
		x = torch.cat([self.cls.expand(x.size(0), -1, -1), x], dim=1) + self.pos
		for b in self.blocks:
			# a whole layer is left out now and then
			if self.training and random.random() < self.layerdrop:
				continue
			if self.ckpt and self.training:
				x = checkpoint(b, x, use_reentrant=False)
			else:
				x = b(x)
		return self.head(self.norm(x).mean(1))
