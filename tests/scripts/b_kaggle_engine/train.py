import argparse
import os

import numpy as np
import pandas as pd
import torch
from sklearn import metrics
from sklearn import preprocessing

import config
import create_folds
import engine
from dataset import TabularDataset
from model import TabularModel
from utils import EarlyStop, seed_everything


def run(fold):
    seed_everything(config.SEED)
    dfx = pd.read_csv(config.TRAINING_FILE)
    df_train = dfx[dfx.kfold != fold].reset_index(drop=True)
    df_valid = dfx[dfx.kfold == fold].reset_index(drop=True)

    feature_columns = [c for c in dfx.columns if c.startswith("f_")]
    scaler = preprocessing.StandardScaler()
    xtrain = scaler.fit_transform(df_train[feature_columns].values)
    xvalid = scaler.transform(df_valid[feature_columns].values)

    train_dataset = TabularDataset(xtrain, df_train.target.values)
    train_data_loader = torch.utils.data.DataLoader(
        train_dataset, batch_size=config.TRAIN_BATCH_SIZE, num_workers=0, shuffle=True
    )
    valid_dataset = TabularDataset(xvalid, df_valid.target.values)
    valid_data_loader = torch.utils.data.DataLoader(
        valid_dataset, batch_size=config.VALID_BATCH_SIZE, num_workers=0
    )

    device = torch.device(config.DEVICE)
    model = TabularModel(nfeatures=xtrain.shape[1])
    model.to(device)

    num_train_steps = int(len(df_train) / config.TRAIN_BATCH_SIZE * config.EPOCHS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.LR)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: max(0.0, 1.0 - step / max(1, num_train_steps + config.EPOCHS))
    )

    if not os.path.isdir(config.MODEL_PATH):
        os.makedirs(config.MODEL_PATH)
    model_path = os.path.join(config.MODEL_PATH, f"model_fold_{fold}.bin")
    es = EarlyStop(patience=3)
    for epoch in range(config.EPOCHS):
        train_loss = engine.train_fn(train_data_loader, model, optimizer, device, scheduler=scheduler)
        outputs, targets, valid_loss = engine.eval_fn(valid_data_loader, model, device)
        auc = metrics.roc_auc_score(targets, np.array(outputs).ravel())
        acc = metrics.accuracy_score(targets, np.array(outputs) >= 0.5)
        print(f"Epoch = {epoch}, train loss = {train_loss:.4f}, valid loss = {valid_loss:.4f}, AUC = {auc:.5f}, Accuracy = {acc:.4f}")
        es.step(auc, model, model_path)
        if es.stop:
            print("stopped early, epoch", epoch)
            break

    # out of fold predictions
    model.load_state_dict(torch.load(model_path))
    outputs, targets, _ = engine.eval_fn(valid_data_loader, model, device)
    df_valid["pred"] = np.array(outputs).ravel()
    df_valid[["id", "target", "pred"]].to_csv(f"{config.MODEL_PATH}/oof_{fold}.csv", index=False)
    print("OOF log loss", metrics.log_loss(df_valid.target, df_valid.pred))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fold", type=int, default=0)
    args = parser.parse_args()
    if not os.path.exists(config.TRAINING_FILE):
        create_folds.build()
    run(args.fold)
