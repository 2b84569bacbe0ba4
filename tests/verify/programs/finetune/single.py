"""Three stages on rare and frequent digits: autoencoder, classifier on the frozen encoder, all of it."""
import os
from argparse import ArgumentParser

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

NUM_CLASSES = 10


def get_args():
    p = ArgumentParser()
    p.add_argument("--seed", type=int, default=5)
    p.add_argument("--bs", type=int, default=32)
    p.add_argument("--pretrain-epochs", type=int, default=2)
    p.add_argument("--probe-epochs", type=int, default=2)
    p.add_argument("--finetune-epochs", type=int, default=3)
    p.add_argument("--save-dir", type=str, default="checkpoints")
    return p.parse_args()


def get_data():
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    x, x_val, y, y_val = x[:1300], x[1300:], y[:1300], y[1300:]
    # digits from 5 on are rare
    keep = [i for i in range(len(y)) if y[i] < 5 or i % 4 == 0]
    return TensorDataset(x[keep], y[keep]), TensorDataset(x_val, y_val)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU())
        self.decoder = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 64))

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Classifier(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(24, NUM_CLASSES)

    def forward(self, x):
        return self.head(self.dropout(self.encoder(x)))


def validate_reconstruction(model, val_loader, device):
    model.eval()
    error = 0.0
    with torch.no_grad():
        for x, _ in val_loader:
            x = x.to(device)
            error += ((model(x) - x) ** 2).sum().item()
    return error / len(val_loader.dataset)


def validate(model, val_loader, device):
    model.eval()
    right = torch.zeros(NUM_CLASSES)
    seen = torch.zeros(NUM_CLASSES)
    with torch.no_grad():
        for x, y in val_loader:
            pred = model(x.to(device)).argmax(1).cpu()
            right += torch.bincount(y[pred == y], minlength=NUM_CLASSES)
            seen += torch.bincount(y, minlength=NUM_CLASSES)
    recall = right / seen
    return (right.sum() / seen.sum()).item(), recall.mean().item()


def pretrain(args, train_set, val_loader, device):
    model = Model().to(device)
    loader = DataLoader(train_set, args.bs, shuffle=True, drop_last=True)
    # squared error summed over pixels and images, as usual for (variational) autoencoders
    mse = nn.MSELoss(reduction="sum")
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.pretrain_epochs):
        model.train()
        total = 0.0
        for x, _ in loader:
            x = x.to(device)
            optimizer.zero_grad()
            loss = mse(model(x), x)
            loss.backward()
            optimizer.step()
            total += loss.item()
        error = validate_reconstruction(model, val_loader, device)
        print(f"pretrain {epoch}: loss {total / (len(loader) * loader.batch_size):.4f} val error {error:.4f}")
    torch.save(model.state_dict(), os.path.join(args.save_dir, "autoencoder.pt"))
    return model.encoder


def train_stage(name, args, model, train_set, val_loader, device, epochs, lr):
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=lr)
    labels = train_set.tensors[1]
    weights = 1.0 / torch.bincount(labels).float()[labels]
    sampler = WeightedRandomSampler(weights, len(train_set))
    loader = DataLoader(train_set, args.bs, sampler=sampler, drop_last=True)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    best = 0.0
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        accuracy, recall = validate(model, val_loader, device)
        print(f"{name} {epoch}: loss {total / len(loader):.4f} accuracy {accuracy:.4f} mean recall {recall:.4f}")
        if recall > best:
            best = recall
            torch.save(model.state_dict(), os.path.join(args.save_dir, f"{name}_best.pt"))
    model.load_state_dict(torch.load(os.path.join(args.save_dir, f"{name}_best.pt"), map_location=device))


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if not os.path.exists(args.save_dir):
        os.makedirs(args.save_dir)
    train_set, val_set = get_data()
    val_loader = DataLoader(val_set, 100)

    encoder = pretrain(args, train_set, val_loader, device)

    model = Classifier(encoder).to(device)
    for p in model.encoder.parameters():
        p.requires_grad = False
    train_stage("probe", args, model, train_set, val_loader, device, args.probe_epochs, lr=2e-2)

    for p in model.encoder.parameters():
        p.requires_grad = True
    train_stage("finetune", args, model, train_set, val_loader, device, args.finetune_epochs, lr=4e-3)

    accuracy, recall = validate(model, val_loader, device)
    print(f"final: accuracy {accuracy:.4f} mean recall {recall:.4f}")


if __name__ == "__main__":
    main()
