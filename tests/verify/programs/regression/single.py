# Friedman's regression problem with an MLP: small micro-batches, gradients accumulated and clipped.
import json
import sys

import numpy as np
import torch
from sklearn.datasets import make_friedman1
from sklearn.metrics import mean_absolute_error, r2_score
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 0
BATCH_SIZE = 16
ACCUM_STEPS = 4
MAX_NORM = 1.0
EPOCHS = 8
PATIENCE = 2
MIN_DELTA = 0.05
LR = 3e-3

torch.manual_seed(SEED)
np.random.seed(SEED)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

# ---------------------------------------------------------------- data
X, y = make_friedman1(n_samples=2000, n_features=10, noise=1.0, random_state=7)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=401, random_state=1)
X_train, X_val, y_train, y_val = train_test_split(X_train, y_train, test_size=159, random_state=2)
mean, std = X_train.mean(0), X_train.std(0)


def to_dataset(X, y):
    X = torch.tensor((X - mean) / std, dtype=torch.float32)
    y = torch.tensor((y - y_train.mean()) / y_train.std(), dtype=torch.float32)
    return TensorDataset(X, y)


train_ds, val_ds, test_ds = to_dataset(X_train, y_train), to_dataset(X_val, y_val), to_dataset(X_test, y_test)
train_loader = DataLoader(train_ds, BATCH_SIZE, shuffle=True)
val_loader = DataLoader(val_ds, 64)
test_loader = DataLoader(test_ds, 64)

# ---------------------------------------------------------------- model
model = nn.Sequential(
    nn.Linear(10, 64),
    nn.ReLU(),
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 1),
).to(device)
criterion = nn.MSELoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.7)


def evaluate(loader):
    model.eval()
    preds, targets = [], []
    with torch.no_grad():
        for xb, yb in loader:
            preds.append(model(xb.to(device)).squeeze(1).cpu())
            targets.append(yb)
    preds, targets = torch.cat(preds).numpy(), torch.cat(targets).numpy()
    mse = float(((preds - targets) ** 2).mean())
    return mse, mean_absolute_error(targets, preds), r2_score(targets, preds)


# ---------------------------------------------------------------- training
best_mse = float("inf")
wait = 0
for epoch in range(EPOCHS):
    model.train()
    running_loss = 0.0
    optimizer.zero_grad()
    for i, (xb, yb) in enumerate(train_loader):
        xb, yb = xb.to(device), yb.to(device)
        loss = criterion(model(xb).squeeze(1), yb)
        running_loss += loss.item()
        (loss / ACCUM_STEPS).backward()
        if (i + 1) % ACCUM_STEPS == 0 or i + 1 == len(train_loader):
            nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
            optimizer.step()
            optimizer.zero_grad()
    scheduler.step()

    mse, mae, r2 = evaluate(val_loader)
    print("epoch %d | train mse %.4f | val mse %.4f | val mae %.4f | val r2 %.4f"
          % (epoch, running_loss / len(train_loader), mse, mae, r2))

    if mse < best_mse - MIN_DELTA:
        best_mse = mse
        wait = 0
        torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(), "mse": mse}, "model_best.pth")
    else:
        wait += 1
        if wait >= PATIENCE:
            print("early stopping at epoch %d" % epoch)
            break

# ---------------------------------------------------------------- test
checkpoint = torch.load("model_best.pth", map_location=device)
model.load_state_dict(checkpoint["model"])
mse, mae, r2 = evaluate(test_loader)
print("test | best epoch %d | mse %.4f | mae %.4f | r2 %.4f" % (checkpoint["epoch"], mse, mae, r2))
with open("metrics.json", "w") as f:
    json.dump({"mse": mse, "mae": float(mae), "r2": float(r2)}, f, indent=2)
