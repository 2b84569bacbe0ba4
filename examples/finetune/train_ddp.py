"""图像分类两阶段微调（单卡）

第一阶段：冻结特征层，只训练分类头
第二阶段：全部解冻，小学习率微调

运行：
    python make_data.py
    python train.py
    torchrun --nproc-per-node=2 train.py
"""

import csv
import os
import random
import time
from collections import Counter

import matplotlib

matplotlib.use("Agg")  # 服务器没有显示器
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from PIL import Image
from sklearn.metrics import classification_report, confusion_matrix
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from ddp_runtime import (
    all_reduce_sum,
    broadcast_value,
    device_ids,
    DistributedSampler,
    EvalSampler,
    gather_in_order,
    global_batches,
    print_log,
    save_checkpoint,
    setup_ddp,
    sync_buffers,
    unwrap,
    vary_seed,
    whole_loader,
)

# ======================== 全局配置 ========================
local_rank, rank, world_size = setup_ddp()
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = False

DEVICE = torch.device(f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu")
USE_AMP = DEVICE.type == "cuda"  # 混合精度只在显卡上开

# 常用的几项可以用环境变量临时改，不用动代码
DATA_DIR = os.environ.get("DATA_DIR", "./data/digits")
SAVE_DIR = os.environ.get("SAVE_DIR", "./output")
ARCH = os.environ.get("ARCH", "small_cnn")  # 装了 torchvision 可以写 mobilenet_v2、efficientnet_b0、vgg16_bn ...
PRETRAINED = os.environ.get("PRETRAINED", "")  # 本地预训练权重，留空则从头训练
USE_COMPILE = os.environ.get("USE_COMPILE", "0") == "1"
NUM_WORKERS = int(os.environ.get("NUM_WORKERS", 2))
STAGE1_EPOCHS = int(os.environ.get("STAGE1_EPOCHS", 3))
STAGE2_EPOCHS = int(os.environ.get("STAGE2_EPOCHS", 20))
EARLY_STOP_PATIENCE = int(os.environ.get("EARLY_STOP_PATIENCE", 5))
SEED = int(os.environ.get("SEED", 42))

BATCH_SIZE = 32
IMAGE_SIZE = 32
STAGE1_LR = 3e-3
STAGE2_LR = 2e-3
WEIGHT_DECAY = 1e-4
LABEL_SMOOTHING = 0.1
CLASS_NAMES = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
NUM_CLASSES = len(CLASS_NAMES)


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


# ======================== 数据 ========================
class ImageFolderDataset(Dataset):
    """每个类别一个文件夹，返回 (图像, 标签, 路径)"""

    def __init__(self, root, train):
        self.train = train
        self.samples = []
        for label, name in enumerate(CLASS_NAMES):
            class_dir = os.path.join(root, name)
            for file_name in sorted(os.listdir(class_dir)):
                if file_name.lower().endswith((".png", ".jpg", ".jpeg")):
                    self.samples.append((os.path.join(class_dir, file_name), label))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        image = Image.open(path).convert("RGB").resize((IMAGE_SIZE, IMAGE_SIZE), Image.BILINEAR)
        if self.train:
            # 数据增强：小角度旋转 + 平移（数字不能翻转）
            angle = random.uniform(-12, 12)
            shift = (random.randint(-2, 2), random.randint(-2, 2))
            image = image.rotate(angle, resample=Image.BILINEAR, translate=shift)
        array = np.asarray(image, dtype=np.float32) / 255.0
        array = (array - 0.5) / 0.5
        return torch.from_numpy(array).permute(2, 0, 1).contiguous(), label, path


def build_dataloader():
    train_dataset = ImageFolderDataset(os.path.join(DATA_DIR, "train"), train=True)
    val_dataset = ImageFolderDataset(os.path.join(DATA_DIR, "val"), train=False)

    # 数据集统计
    print_log(f"训练集：{len(train_dataset)} 张，验证集：{len(val_dataset)} 张")
    counter = Counter(label for _, label in train_dataset.samples)
    for label, name in enumerate(CLASS_NAMES):
        print_log(f"  类别 {name}：{counter[label]} 张")

    train_loader = DataLoader(
        train_dataset, BATCH_SIZE, sampler=DistributedSampler(train_dataset, shuffle=True),
        num_workers=NUM_WORKERS, pin_memory=torch.cuda.is_available(),
        prefetch_factor=4 if NUM_WORKERS > 0 else None,
        persistent_workers=NUM_WORKERS > 0, drop_last=True
    )
    val_loader = DataLoader(
        val_dataset, BATCH_SIZE, sampler=EvalSampler(val_dataset, BATCH_SIZE),
        num_workers=NUM_WORKERS, pin_memory=torch.cuda.is_available(),
        prefetch_factor=4 if NUM_WORKERS > 0 else None,
        persistent_workers=NUM_WORKERS > 0
    )
    return train_loader, val_loader


# ======================== 模型 ========================
class SmallCNN(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(2)
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64 * 4, 64),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(64, num_classes),
        )

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)))


def build_model():
    if ARCH == "small_cnn":
        model = SmallCNN(NUM_CLASSES)
        if PRETRAINED:
            model.load_state_dict(torch.load(PRETRAINED, map_location="cpu"))
    else:
        from torchvision import models

        model = getattr(models, ARCH)(weights=None)
        if PRETRAINED:
            model.load_state_dict(torch.load(PRETRAINED, map_location="cpu"))
        # 换成自己的分类头
        if isinstance(model.classifier, nn.Linear):
            model.classifier = nn.Linear(model.classifier.in_features, NUM_CLASSES)
        else:
            model.classifier[-1] = nn.Linear(model.classifier[-1].in_features, NUM_CLASSES)
    return model.to(DEVICE)


# ======================== 训练与验证 ========================
def train_one_epoch(model, train_loader, criterion, optimizer, scaler, desc):
    model.train()
    running_loss = 0.0
    correct = 0
    total = 0

    pbar = tqdm(train_loader, desc=desc, disable=rank != 0)
    for images, labels, _ in pbar:
        images = images.to(DEVICE, non_blocking=True)
        labels = labels.to(DEVICE, non_blocking=True)

        optimizer.zero_grad()
        with torch.amp.autocast("cuda", enabled=USE_AMP):
            outputs = model(images)
            loss = criterion(outputs, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

        running_loss += loss.item()
        _, preds = torch.max(outputs, 1)
        correct += (preds == labels).sum().item()
        total += labels.size(0)
        pbar.set_postfix(loss=f"{loss.item():.4f}", acc=f"{correct / total:.4f}")
    running_loss, correct, total = all_reduce_sum(running_loss, correct, total)

    return running_loss / global_batches(train_loader), correct / total


@torch.no_grad()
def validate(model, val_loader, criterion):
    model.eval()
    total_loss = 0.0
    correct = 0
    total = 0
    all_preds = []
    all_labels = []

    sync_buffers(model)
    for images, labels, _ in tqdm(val_loader, desc="正在验证", disable=rank != 0):
        images = images.to(DEVICE, non_blocking=True)
        labels = labels.to(DEVICE, non_blocking=True)

        outputs = model.module(images)
        loss = criterion(outputs, labels)
        total_loss += loss.item()

        _, preds = torch.max(outputs, 1)
        correct += (preds == labels).sum().item()
        total += labels.size(0)
        all_preds.extend(preds.cpu().numpy())
        all_labels.extend(labels.cpu().numpy())
    total_loss, correct, total = all_reduce_sum(total_loss, correct, total)
    all_preds, all_labels = gather_in_order(all_preds, all_labels)

    avg_loss = total_loss / global_batches(val_loader)
    acc = correct / total

    print_log(f"\n验证集：Loss={avg_loss:.4f}, 准确率={acc:.4f} ({correct}/{total})")
    print_log("混淆矩阵：\n", confusion_matrix(all_labels, all_preds, labels=range(NUM_CLASSES)))
    print_log(classification_report(
        all_labels, all_preds, labels=range(NUM_CLASSES),
        target_names=CLASS_NAMES, digits=4, zero_division=0
    ))
    return avg_loss, acc


def train_stage1(model, train_loader, val_loader, criterion, history):
    print_log("\n========== 第一阶段：只训练分类头 ==========")
    for param in model.module.features.parameters():
        param.requires_grad = False
    for param in model.module.classifier.parameters():
        param.requires_grad = True

    optimizer = optim.AdamW(model.module.classifier.parameters(), lr=STAGE1_LR, weight_decay=WEIGHT_DECAY)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STAGE1_EPOCHS)
    scaler = torch.amp.GradScaler("cuda", enabled=USE_AMP)

    best_acc = 0.0
    early_stop_counter = 0
    vary_seed()
    for epoch in range(STAGE1_EPOCHS):
        train_loader.sampler.set_epoch(epoch)
        train_loss, train_acc = train_one_epoch(
            model, train_loader, criterion, optimizer, scaler, f"阶段1 [{epoch + 1}/{STAGE1_EPOCHS}]"
        )
        val_loss, val_acc = validate(model, val_loader, criterion)
        scheduler.step()

        history["train_loss"].append(train_loss)
        history["train_acc"].append(train_acc)
        history["val_loss"].append(val_loss)
        history["val_acc"].append(val_acc)
        print_log(f"阶段1 Epoch {epoch + 1}：训练Loss={train_loss:.4f}, 训练准确率={train_acc:.4f}, "
              f"验证Loss={val_loss:.4f}, 验证准确率={val_acc:.4f}, 学习率={optimizer.param_groups[0]['lr']:.6f}")

        if broadcast_value(val_acc > best_acc):
            best_acc = val_acc
            early_stop_counter = 0
            save_checkpoint(unwrap(model).state_dict(), os.path.join(SAVE_DIR, "stage1_best.pth"))
            print_log(f"保存第一阶段最优模型，准确率={best_acc:.4f}")
        else:
            early_stop_counter += 1
            if broadcast_value(early_stop_counter >= EARLY_STOP_PATIENCE):
                print_log(f"连续 {EARLY_STOP_PATIENCE} 轮没有提升，第一阶段提前结束")
                break
    return best_acc


def train_stage2(model, train_loader, val_loader, criterion, history):
    print_log("\n========== 第二阶段：全部解冻微调 ==========")
    for param in model.parameters():
        param.requires_grad = True

    # 特征层用小一些的学习率
    optimizer = optim.AdamW([
        {"params": model.module.features.parameters(), "lr": STAGE2_LR * 0.5},
        {"params": model.module.classifier.parameters(), "lr": STAGE2_LR},
    ], weight_decay=WEIGHT_DECAY)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STAGE2_EPOCHS)
    scaler = torch.amp.GradScaler("cuda", enabled=USE_AMP)

    best_acc = 0.0
    early_stop_counter = 0
    for epoch in range(STAGE2_EPOCHS):
        train_loader.sampler.set_epoch(epoch)
        epoch_start = time.time()
        train_loss, train_acc = train_one_epoch(
            model, train_loader, criterion, optimizer, scaler, f"阶段2 [{epoch + 1}/{STAGE2_EPOCHS}]"
        )
        val_loss, val_acc = validate(model, val_loader, criterion)
        scheduler.step()

        history["train_loss"].append(train_loss)
        history["train_acc"].append(train_acc)
        history["val_loss"].append(val_loss)
        history["val_acc"].append(val_acc)
        print_log(f"阶段2 Epoch {epoch + 1}：训练Loss={train_loss:.4f}, 训练准确率={train_acc:.4f}, "
              f"验证Loss={val_loss:.4f}, 验证准确率={val_acc:.4f}, 用时={time.time() - epoch_start:.1f}秒")

        if broadcast_value(val_acc > best_acc):
            best_acc = val_acc
            early_stop_counter = 0
            save_checkpoint(unwrap(model).state_dict(), os.path.join(SAVE_DIR, "stage2_best.pth"))
            print_log(f"保存第二阶段最优模型，准确率={best_acc:.4f}")
        else:
            early_stop_counter += 1
            if broadcast_value(early_stop_counter >= EARLY_STOP_PATIENCE):
                print_log(f"连续 {EARLY_STOP_PATIENCE} 轮没有提升，提前结束")
                break
    return best_acc


def plot_curves(history):
    # 服务器上一般没有中文字体，图里用英文
    epochs = range(1, len(history["train_loss"]) + 1)
    plt.figure(figsize=(10, 4))
    plt.subplot(1, 2, 1)
    plt.plot(epochs, history["train_loss"], label="train")
    plt.plot(epochs, history["val_loss"], label="val")
    plt.title("Loss")
    plt.legend()
    plt.subplot(1, 2, 2)
    plt.plot(epochs, history["train_acc"], label="train")
    plt.plot(epochs, history["val_acc"], label="val")
    plt.title("Accuracy")
    plt.legend()
    plt.tight_layout()
    plt.savefig(os.path.join(SAVE_DIR, "curves.png"), dpi=100)
    plt.close()
    print_log("训练曲线已保存")


# ======================== 检查与推理 ========================
def grad_cam_check(model, val_loader, num_images=6):
    """看看模型关注的是不是数字本身"""
    model.eval()
    cam_dir = os.path.join(SAVE_DIR, "grad_cam")
    os.makedirs(cam_dir, exist_ok=True)

    # torch.compile 之后再挂钩子不生效，要用里面的原始模型
    net = model._orig_mod if hasattr(model, "_orig_mod") else model
    activations = {}
    gradients = {}

    def save_gradient(grad):
        gradients["value"] = grad

    def forward_hook(module, inputs, output):
        activations["value"] = output.detach().clone()
        output.register_hook(save_gradient)

    handle = unwrap(net).features[-1].register_forward_hook(forward_hook)

    images, labels, paths = next(iter(whole_loader(val_loader)))
    for i in tqdm(range(min(num_images, len(images))), desc="Grad-CAM", disable=rank != 0):
        image = images[i:i + 1].to(DEVICE)
        output = net(image)
        pred = output.argmax(dim=1).item()
        net.zero_grad()
        output[0, pred].backward()

        weights = gradients["value"].mean(dim=(2, 3), keepdim=True)
        cam = F.relu((weights * activations["value"]).sum(dim=1, keepdim=True))
        cam = F.interpolate(cam, size=(IMAGE_SIZE, IMAGE_SIZE), mode="bilinear", align_corners=False)
        cam = cam[0, 0].cpu().numpy()
        cam = (cam - cam.min()) / (cam.max() - cam.min() + 1e-8)

        picture = images[i].permute(1, 2, 0).numpy() * 0.5 + 0.5
        plt.figure(figsize=(4, 2))
        plt.subplot(1, 2, 1)
        plt.imshow(picture)
        plt.axis("off")
        plt.title(f"true {CLASS_NAMES[labels[i].item()]}")
        plt.subplot(1, 2, 2)
        plt.imshow(picture)
        plt.imshow(cam, cmap="jet", alpha=0.5)
        plt.axis("off")
        plt.title(f"pred {CLASS_NAMES[pred]}")
        plt.savefig(os.path.join(cam_dir, os.path.basename(paths[i])), dpi=80)
        plt.close()

    handle.remove()
    net.zero_grad()
    print_log(f"Grad-CAM 图已保存到 {cam_dir}")


@torch.no_grad()
def tta_infer(model, val_loader):
    """测试时增强：原图加上四个方向各平移一个像素，概率取平均"""
    model.eval()
    shifts = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
    rows = []
    correct = 0
    sync_buffers(model)
    for images, labels, paths in tqdm(val_loader, desc="TTA推理", disable=rank != 0):
        images = images.to(DEVICE)
        probs = torch.zeros(images.size(0), NUM_CLASSES, device=DEVICE)
        for shift in shifts:
            outputs = model.module(torch.roll(images, shifts=shift, dims=(2, 3)))
            probs += F.softmax(outputs, dim=1)
        probs /= len(shifts)
        scores, preds = probs.max(dim=1)
        correct += (preds.cpu() == labels).sum().item()
        for path, label, pred, score in zip(paths, labels.tolist(), preds.tolist(), scores.tolist()):
            rows.append({
                "path": os.path.relpath(path, DATA_DIR),
                "label": CLASS_NAMES[label],
                "pred": CLASS_NAMES[pred],
                "score": round(score, 4),
            })
    correct = all_reduce_sum(correct)
    rows = gather_in_order(rows)

    df = pd.DataFrame(rows)
    if rank == 0:
        df.to_csv(os.path.join(SAVE_DIR, "predictions.csv"), index=False, encoding="utf-8-sig")
    acc = correct / len(val_loader.dataset)
    print_log(f"TTA 准确率={acc:.4f}，预测结果已保存，共 {len(df)} 条")
    return acc


@torch.no_grad()
def check_high_loss_samples(model, val_loader, top_k=20):
    """损失最高的样本多半是标错的或者很难的，导出来人工看"""
    model.eval()
    criterion = nn.CrossEntropyLoss(reduction="none")
    records = []
    sync_buffers(model)
    for images, labels, paths in tqdm(val_loader, desc="高损失样本", disable=rank != 0):
        outputs = model.module(images.to(DEVICE))
        losses = criterion(outputs, labels.to(DEVICE))
        preds = outputs.argmax(dim=1)
        for path, label, pred, loss in zip(paths, labels.tolist(), preds.tolist(), losses.tolist()):
            records.append((loss, os.path.relpath(path, DATA_DIR), CLASS_NAMES[label], CLASS_NAMES[pred]))
    records = gather_in_order(records)

    records.sort(reverse=True)
    with open(os.path.join(SAVE_DIR, "high_loss_samples.csv") if rank == 0 else os.devnull, "w", newline="", encoding="utf-8-sig") as f:
        writer = csv.writer(f)
        writer.writerow(["loss", "path", "label", "pred"])
        for loss, path, label, pred in records[:top_k]:
            writer.writerow([f"{loss:.4f}", path, label, pred])
    print_log(f"损失最高的 {top_k} 个样本已保存")


# ======================== 主函数 ========================
def main():
    set_seed(SEED)
    os.makedirs(SAVE_DIR, exist_ok=True)
    start_time = time.time()
    print_log(f"使用设备：{DEVICE}")

    train_loader, val_loader = build_dataloader()
    model = build_model()
    if USE_COMPILE:
        model = torch.compile(model, mode="default")
    model = DDP(model, device_ids=device_ids(model), find_unused_parameters=True)
    print_log(f"模型：{ARCH}，参数量：{sum(p.numel() for p in model.parameters()):,}")

    criterion = nn.CrossEntropyLoss(label_smoothing=LABEL_SMOOTHING)
    history = {"train_loss": [], "train_acc": [], "val_loss": [], "val_acc": []}

    # 第一阶段
    best_acc1 = train_stage1(model, train_loader, val_loader, criterion, history)
    dist.barrier()
    unwrap(model).load_state_dict(torch.load(os.path.join(SAVE_DIR, "stage1_best.pth"), map_location=DEVICE))
    print_log(f"第一阶段最优准确率：{best_acc1:.4f}")

    # 第二阶段
    best_acc2 = train_stage2(model, train_loader, val_loader, criterion, history)
    dist.barrier()
    unwrap(model).load_state_dict(torch.load(os.path.join(SAVE_DIR, "stage2_best.pth"), map_location=DEVICE))
    print_log(f"第二阶段最优准确率：{best_acc2:.4f}")

    if rank == 0:
        plot_curves(history)

    # 用最优模型做最终评估
    print_log("\n========== 最终评估 ==========")
    val_loss, val_acc = validate(model, val_loader, criterion)
    if rank == 0:
        grad_cam_check(unwrap(model), val_loader)
    tta_acc = tta_infer(model, val_loader)
    check_high_loss_samples(model, val_loader)

    total_time = time.time() - start_time
    print_log(f"\n训练完成：验证准确率={val_acc:.4f}，TTA准确率={tta_acc:.4f}，总耗时：{total_time:.1f} 秒")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
