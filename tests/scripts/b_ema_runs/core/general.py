import glob
import re
from pathlib import Path

import torch


def increment_path(path):
    """runs/exp -> runs/exp2, runs/exp3 ..."""
    path = Path(path)
    if not path.exists():
        return path
    dirs = glob.glob(f"{path}*")
    n = [int(m.group(1)) for m in (re.search(rf"{path.stem}(\d+)$", d) for d in dirs) if m]
    return Path(f"{path}{max(n) + 1 if n else 2}")


def strip_optimizer(f):
    x = torch.load(f, map_location='cpu', weights_only=False)
    if x.get('ema'):
        x['model'] = x['ema']
    for k in 'optimizer', 'ema', 'updates':
        x[k] = None
    x['epoch'] = -1
    torch.save(x, f)
    print(f"Optimizer stripped from {f}")
