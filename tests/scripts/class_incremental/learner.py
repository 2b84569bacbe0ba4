import logging
import random

import numpy as np
import torch
from torch import optim
from torch.nn import functional as F
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset
from tqdm import tqdm

from network import IncrementalNet

EPS = 1e-8
T = 2


class Learner(object):
    def __init__(self, args):
        self.args = args
        self._network = IncrementalNet(args["width"])
        self._old_network = None
        self._known_classes = 0
        self._total_classes = 0
        self._device = args["device"]
        self._multiple_gpus = args["gpus"]
        self._memory = None
        self.matrix = []

    def incremental_train(self, data):
        self._total_classes = self._known_classes + self.args["increment"]
        self._network.update_fc(self._total_classes)
        logging.info("Learning on {}-{}".format(self._known_classes, self._total_classes))

        new = data.select("train", range(self._known_classes, self._total_classes))
        train_dataset = new if self._memory is None else ConcatDataset([new, self._memory])
        self.train_loader = DataLoader(train_dataset, batch_size=self.args["batch_size"], shuffle=True, num_workers=0)
        test_dataset = data.select("test", range(0, self._total_classes))
        self.test_loader = DataLoader(test_dataset, batch_size=50, shuffle=False, num_workers=0)

        if len(self._multiple_gpus) > 1:
            self._network = torch.nn.DataParallel(self._network, self._multiple_gpus)
        self._network.to(self._device)
        if self._old_network is not None:
            self._old_network.to(self._device)
        self._train(self.train_loader, self.test_loader)
        if len(self._multiple_gpus) > 1:
            self._network = self._network.module
        self._remember(new)

    def after_task(self):
        self._old_network = self._network.copy().freeze()
        self._known_classes = self._total_classes

    def _train(self, train_loader, test_loader):
        optimizer = optim.SGD(self._network.parameters(), lr=self.args["lr"], momentum=0.9, weight_decay=2e-4)
        scheduler = optim.lr_scheduler.MultiStepLR(optimizer=optimizer, milestones=[2], gamma=0.1)
        prog_bar = tqdm(range(self.args["epochs"]))
        for _, epoch in enumerate(prog_bar):
            self._network.train()
            losses = 0.0
            correct, total = 0, 0
            for i, (inputs, targets) in enumerate(train_loader):
                inputs, targets = inputs.to(self._device), targets.to(self._device)
                logits = self._network(inputs)["logits"]
                loss = F.cross_entropy(logits, targets)
                if self._old_network is not None:
                    with torch.no_grad():
                        old = self._old_network(inputs)["logits"]
                    loss = loss + kd_loss(logits[:, :self._known_classes], old, T)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses += loss.item()

                _, preds = torch.max(logits, dim=1)
                correct += preds.eq(targets.expand_as(preds)).cpu().sum()
                total += len(targets)

            scheduler.step()
            train_acc = np.around(correct.numpy() * 100 / total, decimals=2)
            info = "Task {}, Epoch {}/{} => Loss {:.3f}, Train_accy {:.2f}".format(
                self._known_classes // self.args["increment"], epoch + 1, self.args["epochs"],
                losses / len(train_loader), train_acc)
            if epoch == self.args["epochs"] - 1:
                info += ", Test_accy {:.2f}".format(self._compute_accuracy(self._network, test_loader))
            prog_bar.set_description(info)
        logging.info(info)

    def _compute_accuracy(self, model, loader):
        model.eval()
        correct, total = 0, 0
        for i, (inputs, targets) in enumerate(loader):
            with torch.no_grad():
                outputs = model(inputs.to(self._device))["logits"]
            predicts = torch.max(outputs, dim=1)[1]
            correct += (predicts.cpu() == targets).sum()
            total += len(targets)
        return np.around(correct.numpy() * 100 / total, decimals=2)

    def eval_task(self):
        """accuracy of each task so far, and of nearest class means"""
        self._network.eval()
        vectors, targets, preds = [], [], []
        with torch.no_grad():
            for x, y in self.test_loader:
                v = self._network.extract_vector(x.to(self._device))
                vectors.append(F.normalize(v, dim=1).cpu().numpy())
                preds.append(self._network(x.to(self._device))["logits"].argmax(1).cpu().numpy())
                targets.append(y.numpy())
        vectors, targets, preds = np.concatenate(vectors), np.concatenate(targets), np.concatenate(preds)
        inc = self.args["increment"]
        row = [float((preds == targets)[targets // inc == t].mean()) for t in range(self._total_classes // inc)]
        means = np.stack([vectors[targets == c].mean(0) for c in range(self._total_classes)])
        ncm = float(((vectors @ means.T).argmax(1) == targets).mean())
        self.matrix.append(row)
        return row, ncm

    def _remember(self, dataset):
        m = self.args["memory_per_class"] * self.args["increment"]
        kept = Subset(dataset, random.sample(range(len(dataset)), m))
        self._memory = kept if self._memory is None else ConcatDataset([self._memory, kept])

    def save_checkpoint(self, filename):
        self._network.cpu()
        torch.save({"tasks": self._known_classes // self.args["increment"],
                    "model_state_dict": self._network.state_dict()}, "{}_{}.pkl".format(filename, self._known_classes))


def kd_loss(pred, soft, T):
    pred = torch.log_softmax(pred / T, dim=1)
    soft = torch.softmax(soft / T, dim=1)
    return -1 * torch.mul(soft, pred).sum() / pred.shape[0]
