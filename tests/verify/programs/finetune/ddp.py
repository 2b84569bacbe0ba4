"""Three stages on rare and frequent digits: autoencoder, classifier on the frozen encoder, all of it.

torchrun --nproc-per-node=2 ddp.py
"""
import os
from argparse import ArgumentParser

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Sampler, Subset, TensorDataset

NUM_CLASSES = 10


class DistributedWeightedSampler(Sampler):
    """Every rank makes the same weighted draw of an epoch and takes each world_size-th of it."""

    def __init__(self, weights, num_samples, seed):
        self.weights = torch.as_tensor(weights, dtype=torch.double)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.num_samples = num_samples // self.world_size
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.num_samples

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        total = self.num_samples * self.world_size
        drawn = torch.multinomial(self.weights, total, replacement=True, generator=g).tolist()
        return iter(drawn[self.rank :: self.world_size])


def setup():
    cuda = torch.cuda.is_available()
    if "LOCAL_RANK" not in os.environ:
        dist.init_process_group("nccl" if cuda else "gloo", store=dist.HashStore(), rank=0, world_size=1)
        return "cuda:0" if cuda else "cpu"
    local_rank = int(os.environ["LOCAL_RANK"])
    if cuda:
        torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl" if cuda else "gloo")
    return f"cuda:{local_rank}" if cuda else "cpu"


def is_main():
    return dist.get_rank() == 0


def wrap(model, device):
    return DDP(model, device_ids=[torch.device(device).index] if device.startswith("cuda") else None)


def reduced(t, device):
    t = torch.as_tensor(t, dtype=torch.float64).to(device)
    dist.all_reduce(t)
    return t.cpu()


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
    error, n = reduced([error, len(val_loader.dataset)], device).tolist()
    return error / n


def validate(model, val_loader, device):
    model.eval()
    right = torch.zeros(NUM_CLASSES)
    seen = torch.zeros(NUM_CLASSES)
    with torch.no_grad():
        for x, y in val_loader:
            pred = model(x.to(device)).argmax(1).cpu()
            right += torch.bincount(y[pred == y], minlength=NUM_CLASSES)
            seen += torch.bincount(y, minlength=NUM_CLASSES)
    right, seen = reduced(right, device), reduced(seen, device)
    recall = right / seen
    return (right.sum() / seen.sum()).item(), recall.mean().item()


def pretrain(args, train_set, val_loader, device):
    model = wrap(Model().to(device), device)
    sampler = DistributedSampler(train_set, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(train_set, args.bs, sampler=sampler, drop_last=True)
    # squared error summed over pixels and images, as usual for (variational) autoencoders
    mse = nn.MSELoss(reduction="sum")
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.pretrain_epochs):
        sampler.set_epoch(epoch)
        model.train()
        total = 0.0
        for x, _ in loader:
            x = x.to(device)
            optimizer.zero_grad()
            loss = mse(model(x), x)
            # DDP averages over the ranks, and this loss is a sum
            (loss * dist.get_world_size()).backward()
            optimizer.step()
            total += loss.item()
        error = validate_reconstruction(model.module, val_loader, device)
        total, n = reduced([total, len(loader) * loader.batch_size], device).tolist()
        if is_main():
            print(f"pretrain {epoch}: loss {total / n:.4f} val error {error:.4f}")
    if is_main():
        torch.save(model.module.state_dict(), os.path.join(args.save_dir, "autoencoder.pt"))
    return model.module.encoder


def train_stage(name, args, model, train_set, val_loader, device, epochs, lr):
    # wrapped anew in each stage: DDP reduces what was trainable when it was built
    ddp_model = wrap(model, device)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=lr)
    labels = train_set.tensors[1]
    weights = 1.0 / torch.bincount(labels).float()[labels]
    sampler = DistributedWeightedSampler(weights, len(train_set), args.seed)
    loader = DataLoader(train_set, args.bs, sampler=sampler, drop_last=True)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    best = 0.0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        model.train()
        total = 0.0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = criterion(ddp_model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        accuracy, recall = validate(model, val_loader, device)
        total, n = reduced([total, len(loader)], device).tolist()
        if is_main():
            print(f"{name} {epoch}: loss {total / n:.4f} accuracy {accuracy:.4f} mean recall {recall:.4f}")
        if recall > best:
            best = recall
            if is_main():
                torch.save(model.state_dict(), os.path.join(args.save_dir, f"{name}_best.pt"))
    dist.barrier()
    model.load_state_dict(torch.load(os.path.join(args.save_dir, f"{name}_best.pt"), map_location=device))


def main():
    args = get_args()
    device = setup()
    torch.manual_seed(args.seed)
    if is_main():
        os.makedirs(args.save_dir, exist_ok=True)
    train_set, val_set = get_data()
    share = range(dist.get_rank(), len(val_set), dist.get_world_size())
    val_loader = DataLoader(Subset(val_set, share), 100)

    encoder = pretrain(args, train_set, val_loader, device)

    model = Classifier(encoder).to(device)
    torch.manual_seed(args.seed + dist.get_rank())  # dropout
    for p in model.encoder.parameters():
        p.requires_grad = False
    train_stage("probe", args, model, train_set, val_loader, device, args.probe_epochs, lr=2e-2)

    for p in model.encoder.parameters():
        p.requires_grad = True
    train_stage("finetune", args, model, train_set, val_loader, device, args.finetune_epochs, lr=4e-3)

    accuracy, recall = validate(model, val_loader, device)
    if is_main():
        print(f"final: accuracy {accuracy:.4f} mean recall {recall:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
