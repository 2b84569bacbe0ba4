import argparse
import os
import sys

import torch
import torch.nn.functional as F

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "example_model"))
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "utility"))

from cnn import Cnn
from bypass_bn import disable_running_stats, enable_running_stats
from digits import Digits
from log import Log
from sam import SAM
from step_lr import StepLR


def smooth_crossentropy(pred, gold, smoothing=0.1):
    # one value per sample
    n_class = pred.size(1)
    target = torch.full_like(pred, smoothing / (n_class - 1))
    target.scatter_(1, gold.unsqueeze(1), 1.0 - smoothing)
    return F.kl_div(F.log_softmax(pred, dim=1), target, reduction='none').sum(-1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--adaptive", action="store_true")
    parser.add_argument("--batch_size", default=50, type=int)
    parser.add_argument("--dropout", default=0.1, type=float)
    parser.add_argument("--epochs", default=200, type=int)
    parser.add_argument("--learning_rate", default=0.1, type=float)
    parser.add_argument("--momentum", default=0.9, type=float)
    parser.add_argument("--rho", default=0.05, type=float)
    parser.add_argument("--weight_decay", default=0.0005, type=float)
    args = parser.parse_args()

    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    dataset = Digits(args.batch_size)
    log = Log(log_each=10)
    model = Cnn(dropout=args.dropout, classes=len(dataset.classes)).to(device)
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=args.rho, adaptive=args.adaptive,
                    lr=args.learning_rate, momentum=args.momentum, weight_decay=args.weight_decay)
    scheduler = StepLR(optimizer, args.learning_rate, args.epochs)

    for epoch in range(args.epochs):
        model.train()
        log.train(len_dataset=len(dataset.train))
        for batch in dataset.train:
            x, y = (b.to(device) for b in batch)

            enable_running_stats(model)
            out = model(x)
            per_sample = smooth_crossentropy(out, y)
            per_sample.mean().backward()
            optimizer.first_step(zero_grad=True)

            disable_running_stats(model)    # the second pass must not count twice
            smooth_crossentropy(model(x), y).mean().backward()
            optimizer.second_step(zero_grad=True)

            hits = out.detach().argmax(1) == y
            log(model, per_sample.detach().cpu(), hits.cpu(), scheduler.lr())
            scheduler(epoch)

        model.eval()
        log.eval(len_dataset=len(dataset.test))
        with torch.no_grad():
            for batch in dataset.test:
                x, y = (b.to(device) for b in batch)
                out = model(x)
                log(model, smooth_crossentropy(out, y).cpu(), (out.argmax(1) == y).cpu())

    log.flush()
    print("best accuracy", round(log.best, 4))
    torch.save(model.state_dict(), "sam_cnn.pth")
