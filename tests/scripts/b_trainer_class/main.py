import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

from dataset import get_loaders
from model import SmallNet
from trainer import Trainer


def parse_args():
    parser = argparse.ArgumentParser(description='digit classifier')
    parser.add_argument('--epochs', type=int, default=20)
    parser.add_argument('--batch_size', type=int, default=64)
    parser.add_argument('--lr', type=float, default=1e-3)
    parser.add_argument('--patience', type=int, default=5)
    parser.add_argument('--seed', type=int, default=42)
    parser.add_argument('--save_dir', type=str, default='saved')
    return parser.parse_args()


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def main():
    args = parse_args()
    set_seed(args.seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    print(f'Using device: {device}')

    train_loader, val_loader, test_loader = get_loaders(args.batch_size)
    model = SmallNet(num_classes=10).to(device)
    n_params = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f'Trainable parameters: {n_params:,}')

    criterion = nn.CrossEntropyLoss()
    optimizer = optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-4)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)

    trainer = Trainer(model, train_loader, val_loader, criterion, optimizer, scheduler, device,
                      save_dir=args.save_dir, patience=args.patience)
    history = trainer.fit(args.epochs)

    # final test with the best weights
    trainer.load_best()
    test_loss, test_acc = trainer.validate(test_loader)
    print(f'Test loss {test_loss:.4f} | Test acc {test_acc * 100:.2f}%')
    np.savez(os.path.join(args.save_dir, 'history.npz'), **{k: np.array(v) for k, v in history.items()})


if __name__ == '__main__':
    main()
