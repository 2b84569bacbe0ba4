import os
import math
import argparse

import torch
import torch.nn as nn
import torch.optim as optim
import torch.optim.lr_scheduler as lr_scheduler
from torch.utils.data import DataLoader

from backbone.resnet_tiny import ResNetTiny, pretrained_weights
from utils.dataset import split
from utils.train_eval_utils import train_one_epoch, evaluate


def main(args):
    device = torch.device(args.device if torch.cuda.is_available() else "cpu")
    print(args)
    if os.path.exists("./weights") is False:
        os.makedirs("./weights")

    batch_size = args.batch_size
    nw = min([os.cpu_count(), batch_size if batch_size > 1 else 0, 0])
    train_dataset, val_dataset = split([5, 6, 7, 8, 9], True), split([5, 6, 7, 8, 9], False)
    train_loader = DataLoader(train_dataset, batch_size=batch_size, shuffle=True, pin_memory=False, num_workers=nw)
    val_loader = DataLoader(val_dataset, batch_size=batch_size, shuffle=False, num_workers=nw)

    weights = pretrained_weights(args.weights, DataLoader(split([0, 1, 2, 3, 4], True), 32, shuffle=True))
    model = ResNetTiny(num_classes=1000)
    weights_dict = torch.load(weights, map_location=device)
    # 删掉分类层
    for k in list(weights_dict.keys()):
        if k.startswith("fc."):
            del weights_dict[k]
    print(model.load_state_dict(weights_dict, strict=False))

    # change fc layer structure
    in_channel = model.fc.in_features
    model.fc = nn.Linear(in_channel, args.num_classes)
    model.to(device)

    if args.freeze_layers:
        for name, para in model.named_parameters():
            # 除最后一个block和fc外, 其他权重全部冻结
            if name.startswith("layer2") or name.startswith("fc"):
                print("training {}".format(name))
            else:
                para.requires_grad_(False)

    params_1x = [p for n, p in model.named_parameters() if p.requires_grad and n not in ["fc.weight", "fc.bias"]]
    optimizer = optim.SGD([{'params': params_1x}, {'params': model.fc.parameters(), 'lr': args.lr * 5}],
                          lr=args.lr, momentum=0.9, weight_decay=5E-5)
    lf = lambda x: ((1 + math.cos(x * math.pi / args.epochs)) / 2) * (1 - args.lrf) + args.lrf
    scheduler = lr_scheduler.LambdaLR(optimizer, lr_lambda=lf)

    for epoch in range(args.epochs):
        mean_loss = train_one_epoch(model=model, optimizer=optimizer, data_loader=train_loader, device=device, epoch=epoch)
        scheduler.step()
        acc = evaluate(model=model, data_loader=val_loader)
        print("[epoch {}] accuracy: {}".format(epoch, round(acc, 3)))
        with open("weights/results.txt", "a") as f:
            f.write("{} {:.4f} {:.4f} {:.5f}\n".format(epoch, mean_loss, acc, optimizer.param_groups[0]["lr"]))
        torch.save(model.state_dict(), "./weights/model-{}.pth".format(epoch))


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--num_classes', type=int, default=5)
    parser.add_argument('--epochs', type=int, default=30)
    parser.add_argument('--batch-size', type=int, default=32)
    parser.add_argument('--lr', type=float, default=0.01)
    parser.add_argument('--lrf', type=float, default=0.1)
    parser.add_argument('--weights', type=str, default='./pretrained.pth')
    parser.add_argument('--freeze-layers', type=bool, default=True)
    parser.add_argument('--device', default='cuda:0', help='device id (i.e. 0 or cpu)')
    opt = parser.parse_args()
    main(opt)
