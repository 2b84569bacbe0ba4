import os
import time

import torch
from tqdm import tqdm


class Trainer:
    """Trains a classifier and keeps the best weights."""

    def __init__(self, model, train_loader, val_loader, criterion, optimizer, scheduler, device,
                 save_dir='saved', patience=5):
        self.model = model
        self.train_loader = train_loader
        self.val_loader = val_loader
        self.criterion = criterion
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.device = device
        self.save_dir = save_dir
        self.patience = patience

        self.best_acc = 0.0
        self.bad_epochs = 0
        if not os.path.exists(save_dir):
            os.makedirs(save_dir)
        self.best_path = os.path.join(save_dir, 'best_model.pth')

    def train_epoch(self):
        self.model.train()
        running_loss = 0.0
        correct = 0
        total = 0
        for images, labels in tqdm(self.train_loader, desc='train', leave=False):
            images, labels = images.to(self.device), labels.to(self.device)
            self.optimizer.zero_grad()
            outputs = self.model(images)
            loss = self.criterion(outputs, labels)
            loss.backward()
            self.optimizer.step()

            running_loss += loss.item() * images.size(0)
            _, predicted = outputs.max(1)
            total += labels.size(0)
            correct += predicted.eq(labels).sum().item()
        return running_loss / total, correct / total

    @torch.no_grad()
    def validate(self, loader=None):
        loader = loader if loader is not None else self.val_loader
        self.model.eval()
        running_loss = 0.0
        correct = 0
        total = 0
        for images, labels in loader:
            images, labels = images.to(self.device), labels.to(self.device)
            outputs = self.model(images)
            loss = self.criterion(outputs, labels)
            running_loss += loss.item() * images.size(0)
            total += labels.size(0)
            correct += (outputs.argmax(1) == labels).sum().item()
        return running_loss / total, correct / total

    def fit(self, epochs):
        history = {'train_loss': [], 'train_acc': [], 'val_loss': [], 'val_acc': []}
        for epoch in range(1, epochs + 1):
            start = time.time()
            train_loss, train_acc = self.train_epoch()
            val_loss, val_acc = self.validate()
            self.scheduler.step()
            for k, v in zip(history, (train_loss, train_acc, val_loss, val_acc)):
                history[k].append(v)
            print(f'Epoch {epoch:3d}/{epochs} '
                  f'train loss {train_loss:.4f} acc {train_acc:.4f} | '
                  f'val loss {val_loss:.4f} acc {val_acc:.4f} | {time.time() - start:.1f}s')

            if val_acc > self.best_acc:
                self.best_acc = val_acc
                self.bad_epochs = 0
                torch.save(self.model.state_dict(), self.best_path)
                print('  saved new best model')
            else:
                self.bad_epochs += 1
                if self.bad_epochs >= self.patience:
                    print(f'Early stopping at epoch {epoch}')
                    break
        print(f'Best val acc: {self.best_acc:.4f}')
        return history

    def load_best(self):
        self.model.load_state_dict(torch.load(self.best_path))
