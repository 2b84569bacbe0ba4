from __future__ import division

import argparse
import datetime
import os
import time

import torch
from torch.autograd import Variable
from torch.utils.data import DataLoader

from datasets import ListDataset
from models import GridDetector
from test import evaluate

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--gradient_accumulations", type=int, default=2)
    parser.add_argument("--checkpoint_interval", type=int, default=2)
    parser.add_argument("--evaluation_interval", type=int, default=1)
    opt = parser.parse_args()
    print(opt)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    os.makedirs("output", exist_ok=True)
    os.makedirs("checkpoints", exist_ok=True)
    class_names = ["block", "cross"]
    model = GridDetector(len(class_names)).to(device)

    dataset = ListDataset(300, seed=1)
    dataloader = DataLoader(dataset, batch_size=opt.batch_size, shuffle=True, collate_fn=dataset.collate_fn)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.004)

    best_map = 0
    for epoch in range(opt.epochs):
        model.train()
        start_time = time.time()
        for batch_i, (imgs, targets) in enumerate(dataloader):
            batches_done = len(dataloader) * epoch + batch_i
            imgs = Variable(imgs.to(device))
            targets = Variable(targets.to(device), requires_grad=False)

            loss, outputs = model(imgs, targets)
            loss.backward()
            if batches_done % opt.gradient_accumulations:
                # one step for every so many batches
                optimizer.step()
                optimizer.zero_grad()

            if batch_i % 6 == 0:
                left = datetime.timedelta(seconds=int((len(dataloader) - batch_i - 1) * (time.time() - start_time) / (batch_i + 1)))
                print("[Epoch %d/%d, Batch %d/%d] %s  ETA %s" % (
                    epoch, opt.epochs, batch_i, len(dataloader),
                    " ".join("%s %.3f" % kv for kv in model.metrics.items()), left))
            model.seen += imgs.size(0)

        if epoch % opt.evaluation_interval == 0:
            ap = evaluate(model, batch_size=20)
            print("epoch %d, %d images seen: " % (epoch, model.seen) +
                  ", ".join("AP %s %.4f" % (n, a) for n, a in zip(class_names, ap)) + ", mAP %.4f" % ap.mean())
            if ap.mean() > best_map:
                best_map = ap.mean()
                torch.save(model.state_dict(), "checkpoints/best.pth")
        if epoch % opt.checkpoint_interval == 0:
            torch.save(model.state_dict(), "checkpoints/ckpt_%d.pth" % epoch)
    print("best mAP %.4f" % best_map)
