import os
import gc
import copy
import random
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score, log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm

warnings.simplefilter('ignore')


class CFG:
    seed = 2023
    n_fold = 4
    trn_fold = [0, 1, 2, 3]
    epochs = 4
    bs = 32
    valid_bs = 64
    max_lr = 1e-2
    weight_decay = 1e-4
    hidden = 32
    patience = 2
    out = Path('output')
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    debug = False


def seed_everything(seed):
    random.seed(seed)
    os.environ['PYTHONHASHSEED'] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    torch.backends.cudnn.deterministic = True


seed_everything(CFG.seed)
CFG.out.mkdir(exist_ok=True)

raw = load_breast_cancer(as_frame=True)
df = raw.frame.copy()
df.columns = [c.replace(' ', '_') for c in df.columns]
df = df.sample(frac=1, random_state=CFG.seed).reset_index(drop=True)
test_df = df.iloc[450:].reset_index(drop=True).drop(columns='target')
test_answer = df.iloc[450:]['target'].values
df = df.iloc[:450].reset_index(drop=True)
features = [c for c in df.columns if c != 'target']

skf = StratifiedKFold(n_splits=CFG.n_fold, shuffle=True, random_state=CFG.seed)
df['fold'] = -1
for i, (_, va) in enumerate(skf.split(df, df['target'])):
    df.loc[va, 'fold'] = i
print(df.groupby(['fold', 'target']).size().unstack())


class TabDataset(Dataset):
    def __init__(self, X, y=None):
        self.X, self.y = X.astype(np.float32), y

    def __len__(self):
        return self.X.shape[0]

    def __getitem__(self, i):
        if self.y is None:
            return {'x': torch.tensor(self.X[i])}
        return {'x': torch.tensor(self.X[i]), 'y': torch.tensor(self.y[i], dtype=torch.float32)}


class MLP(nn.Module):
    def __init__(self, n_in, hidden):
        super().__init__()
        self.bn0 = nn.BatchNorm1d(n_in)
        self.drop0 = nn.Dropout(0.1)
        self.dense1 = nn.utils.parametrizations.weight_norm(nn.Linear(n_in, hidden))
        self.bn1 = nn.BatchNorm1d(hidden)
        self.drop1 = nn.Dropout(0.2)
        self.dense2 = nn.Linear(hidden, 1)

    def forward(self, x):
        x = self.drop0(self.bn0(x))
        x = F.leaky_relu(self.dense1(x))
        return self.dense2(self.drop1(self.bn1(x))).squeeze(1)


def train_fn(model, optimizer, scheduler, loss_fn, loader, device):
    model.train()
    final_loss = 0
    for data in loader:
        optimizer.zero_grad()
        out = model(data['x'].to(device))
        loss = loss_fn(out, data['y'].to(device))
        loss.backward()
        optimizer.step()
        scheduler.step()
        final_loss += loss.item()
    final_loss /= len(loader)
    return final_loss


def valid_fn(model, loss_fn, loader, device):
    model.eval()
    final_loss = 0
    preds = []
    for data in loader:
        with torch.no_grad():
            out = model(data['x'].to(device))
        final_loss += loss_fn(out, data['y'].to(device)).item()
        preds.append(out.sigmoid().detach().cpu().numpy())
    return final_loss / len(loader), np.concatenate(preds)


def inference_fn(model, loader, device):
    model.eval()
    preds = []
    with torch.no_grad():
        for data in loader:
            preds.append(model(data['x'].to(device)).sigmoid().cpu().numpy())
    return np.concatenate(preds)


def run_fold(fold):
    trn, val = df[df.fold != fold], df[df.fold == fold]
    scaler = StandardScaler().fit(trn[features])
    train_ds = TabDataset(scaler.transform(trn[features]), trn['target'].values)
    valid_ds = TabDataset(scaler.transform(val[features]), val['target'].values)
    trainloader = DataLoader(train_ds, batch_size=CFG.bs, shuffle=True, drop_last=True)
    validloader = DataLoader(valid_ds, batch_size=CFG.valid_bs, shuffle=False)

    model = MLP(len(features), CFG.hidden).to(CFG.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=CFG.weight_decay)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=CFG.max_lr, epochs=CFG.epochs, steps_per_epoch=len(trainloader))
    loss_fn = nn.BCEWithLogitsLoss()

    best_auc, stop, oof_fold = 0, 0, np.zeros(len(val))
    for epoch in range(CFG.epochs):
        tr_loss = train_fn(model, optimizer, scheduler, loss_fn, trainloader, CFG.device)
        va_loss, va_preds = valid_fn(model, loss_fn, validloader, CFG.device)
        auc = roc_auc_score(val['target'].values, va_preds)
        print(f'FOLD {fold} EPOCH {epoch} train {tr_loss:.4f} valid {va_loss:.4f} auc {auc:.5f}')
        if auc > best_auc:
            best_auc, stop, oof_fold = auc, 0, va_preds
            torch.save({'model': model.state_dict(), 'preds': oof_fold}, CFG.out / f'fold{fold}_best.pth')
        else:
            stop += 1
            if stop >= CFG.patience:
                break

    test_loader = DataLoader(TabDataset(scaler.transform(test_df[features])), batch_size=CFG.valid_bs, shuffle=False)
    state = torch.load(CFG.out / f'fold{fold}_best.pth', weights_only=False)
    model.load_state_dict(state['model'])
    test_preds = inference_fn(model, test_loader, CFG.device)
    del model, optimizer, scheduler, trainloader
    gc.collect()
    torch.cuda.empty_cache()
    return val.index.values, state['preds'], test_preds


if __name__ == '__main__':
    oof = np.zeros(len(df))
    sub = np.zeros(len(test_df))
    t0 = time.time()
    for fold in tqdm(CFG.trn_fold):
        idx, p, t = run_fold(fold)
        oof[idx] = p
        sub += t / CFG.n_fold
    print(f"CV auc {roc_auc_score(df['target'], oof):.5f} logloss {log_loss(df['target'], oof.clip(1e-4, 1 - 1e-4)):.5f}")
    print(f"holdout auc {roc_auc_score(test_answer, sub):.5f}   {time.time() - t0:.1f}s")
    pd.DataFrame({'id': np.arange(len(sub)), 'target': sub}).to_csv('submission.csv', index=False)
    df[['fold', 'target']].assign(pred=oof).to_csv(CFG.out / 'oof.csv')
