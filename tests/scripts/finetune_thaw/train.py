# -*- coding: utf-8 -*-
"""
两阶段训练：先冻结特征层只训练分类头，再解冻全部层微调
"""
import os
import time
import random
import warnings
import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import Dataset, DataLoader
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.metrics import confusion_matrix, classification_report
from tqdm import tqdm

warnings.filterwarnings("ignore")

# ===================== 全局配置 =====================
torch.backends.cudnn.benchmark = True
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SAVE_DIR = "./checkpoints"
BATCH_SIZE = 32
NUM_WORKERS = 0
STAGE1_EPOCHS = 3
STAGE2_EPOCHS = 6
EARLY_STOP_PATIENCE = 2
CLASS_NAMES = [str(i) for i in range(10)]
SEED = 42


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


set_seed(SEED)
if not os.path.exists(SAVE_DIR):
    os.makedirs(SAVE_DIR)


class DigitDataset(Dataset):
    def __init__(self, images, labels, train=False):
        self.images = images
        self.labels = labels
        self.train = train

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        img = torch.tensor(self.images[idx], dtype=torch.float32).unsqueeze(0) / 16.0
        if self.train and random.random() < 0.5:
            img = img + torch.randn_like(img) * 0.05   # 加一点噪声做增强
        return img, int(self.labels[idx]), f"img_{idx:05d}.png"


def build_dataloader():
    digits = load_digits()
    x_train, x_val, y_train, y_val = train_test_split(
        digits.images, digits.target, test_size=0.2, random_state=SEED, stratify=digits.target)
    train_dataset = DigitDataset(x_train, y_train, train=True)
    val_dataset = DigitDataset(x_val, y_val)
    print(f"训练集: {len(train_dataset)}  验证集: {len(val_dataset)}")
    train_loader = DataLoader(
        train_dataset, BATCH_SIZE, shuffle=True,
        num_workers=NUM_WORKERS, pin_memory=torch.cuda.is_available(), drop_last=True
    )
    val_loader = DataLoader(
        val_dataset, BATCH_SIZE, shuffle=False,
        num_workers=NUM_WORKERS, pin_memory=torch.cuda.is_available()
    )
    return train_loader, val_loader


class Net(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 16, num_classes))

    def forward(self, x):
        return self.classifier(self.features(x))


def build_model():
    model = Net(len(CLASS_NAMES)).to(DEVICE)
    return model


def train_one_epoch(model, train_loader, criterion, optimizer, epoch):
    model.train()
    total_loss, correct, total = 0.0, 0, 0
    pbar = tqdm(train_loader, desc=f"正在训练 epoch {epoch + 1}")
    for images, labels, _ in pbar:
        images = images.to(DEVICE, non_blocking=True)
        labels = labels.to(DEVICE, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        outputs = model(images)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        total_loss += loss.item()
        correct += (outputs.argmax(1) == labels).sum().item()
        total += labels.size(0)
        pbar.set_postfix(loss=f"{loss.item():.4f}", acc=f"{correct / total:.4f}")
    return total_loss / len(train_loader), correct / total


@torch.no_grad()
def validate(model, val_loader, criterion, show_report=False):
    model.eval()
    total_loss = 0.0
    correct = 0
    total = 0
    all_preds = []
    all_labels = []
    for images, labels, _ in tqdm(val_loader, desc="正在验证"):
        images = images.to(DEVICE, non_blocking=True)
        labels = labels.to(DEVICE, non_blocking=True)
        outputs = model(images)
        loss = criterion(outputs, labels)
        total_loss += loss.item()
        _, preds = torch.max(outputs, 1)
        correct += (preds == labels).sum().item()
        total += labels.size(0)
        all_preds.extend(preds.cpu().numpy())
        all_labels.extend(labels.cpu().numpy())
    avg_loss = total_loss / len(val_loader)
    acc = correct / total
    print(f"\n验证集：Loss={avg_loss:.4f}, 准确率={acc:.4f}")
    if show_report:
        print("混淆矩阵：\n", confusion_matrix(all_labels, all_preds))
        print(classification_report(all_labels, all_preds, target_names=CLASS_NAMES, digits=4))
    return avg_loss, acc


@torch.no_grad()
def check_high_loss_samples(model, val_loader, top=20):
    """找出损失最大的样本，人工复查"""
    model.eval()
    crit = nn.CrossEntropyLoss(reduction="none")
    rows = []
    for images, labels, names in val_loader:
        out = model(images.to(DEVICE))
        losses = crit(out, labels.to(DEVICE)).cpu().numpy()
        preds = out.argmax(1).cpu().numpy()
        for n, l, p, t in zip(names, losses, preds, labels.numpy()):
            rows.append({"文件名": n, "loss": l, "预测": p, "真实": t})
    df = pd.DataFrame(rows).sort_values("loss", ascending=False).head(top)
    df.to_csv(os.path.join(SAVE_DIR, "high_loss.csv"), index=False, encoding="utf-8-sig")


def main():
    start = time.time()
    train_loader, val_loader = build_dataloader()
    model = build_model()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    # ---------- 阶段一：冻结特征层 ----------
    print("========== 阶段一：只训练分类头 ==========")
    for param in model.features.parameters():
        param.requires_grad = False
    for param in model.classifier.parameters():
        param.requires_grad = True
    optimizer = optim.AdamW(model.classifier.parameters(), lr=3e-3, weight_decay=1e-4)
    best_acc = 0.0
    for epoch in range(STAGE1_EPOCHS):
        train_loss, train_acc = train_one_epoch(model, train_loader, criterion, optimizer, epoch)
        val_loss, val_acc = validate(model, val_loader, criterion)
        print(f"Epoch {epoch + 1}/{STAGE1_EPOCHS} 训练loss {train_loss:.4f} 训练acc {train_acc:.4f} 验证acc {val_acc:.4f}")
        if val_acc > best_acc:
            best_acc = val_acc
            torch.save(model.state_dict(), os.path.join(SAVE_DIR, "stage1_best.pth"))

    # ---------- 阶段二：解冻全部 ----------
    print("========== 阶段二：全部解冻微调 ==========")
    model.load_state_dict(torch.load(os.path.join(SAVE_DIR, "stage1_best.pth")))
    for param in model.features.parameters():
        param.requires_grad = True
    optimizer = optim.AdamW([
        {"params": model.features.parameters(), "lr": 5e-4},
        {"params": model.classifier.parameters(), "lr": 1e-3},
    ], weight_decay=1e-4)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STAGE2_EPOCHS)
    early_stop_counter = 0
    best_acc = 0.0
    for epoch in range(STAGE2_EPOCHS):
        train_loss, train_acc = train_one_epoch(model, train_loader, criterion, optimizer, epoch)
        val_loss, val_acc = validate(model, val_loader, criterion)
        scheduler.step()
        print(f"Epoch {epoch + 1}/{STAGE2_EPOCHS} 训练loss {train_loss:.4f} 训练acc {train_acc:.4f} 验证acc {val_acc:.4f}")
        if val_acc > best_acc:
            best_acc = val_acc
            early_stop_counter = 0
            torch.save(model.state_dict(), os.path.join(SAVE_DIR, "stage2_best.pth"))
        else:
            early_stop_counter += 1
            if early_stop_counter >= EARLY_STOP_PATIENCE:
                print("早停！")
                break

    model.load_state_dict(torch.load(os.path.join(SAVE_DIR, "stage2_best.pth"), map_location=DEVICE))
    validate(model, val_loader, criterion, show_report=True)
    check_high_loss_samples(model, val_loader)
    print(f"总耗时 {(time.time() - start) / 60:.2f} 分钟, 最优准确率 {best_acc:.4f}")


if __name__ == "__main__":
    main()
