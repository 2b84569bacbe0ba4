import argparse
import logging
import os
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader, random_split
from tqdm import tqdm

from evaluate import evaluate
from unet import UNet
from utils.data_loading import BasicDataset, draw_examples
from utils.dice_score import dice_loss

dir_img = Path('./data/imgs/')
dir_mask = Path('./data/masks/')
dir_checkpoint = Path('./checkpoints/')


def get_loaders(dataset, val_percent, batch_size, cuda):
    n_val = int(len(dataset) * val_percent)
    parts = random_split(dataset, [len(dataset) - n_val, n_val])
    kw = dict(batch_size=batch_size, num_workers=min(2, os.cpu_count()), pin_memory=cuda)
    return parts, DataLoader(parts[0], shuffle=True, **kw), DataLoader(parts[1], shuffle=False, drop_last=True, **kw)


def train_net(net, device, epochs=5, batch_size=1, lr=1e-5, val_percent=0.1, save_cp=True, img_scale=0.5,
              amp=False, clip=1.0):
    dataset = BasicDataset(dir_img, dir_mask, img_scale)
    (train_set, val_set), train_loader, val_loader = get_loaders(dataset, val_percent, batch_size, device.type == 'cuda')
    n_train = len(train_set)
    logging.info(f'{n_train} images to train, {len(val_set)} to validate, {epochs} epochs of batches of {batch_size}, '
                 f'lr {lr}, {device.type}, scale {img_scale}, amp {amp}')

    optimizer = optim.RMSprop(net.parameters(), lr=lr, weight_decay=1e-8, momentum=0.9)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, 'max', patience=2)
    scaler = torch.amp.GradScaler(device.type, enabled=amp)
    ce = nn.CrossEntropyLoss()
    val_every = n_train // (2 * batch_size)    # twice in an epoch
    global_step = 0

    for epoch in range(epochs):
        net.train()
        epoch_loss = 0
        with tqdm(total=n_train, desc=f'Epoch {epoch + 1}/{epochs}', unit='img') as pbar:
            for batch in train_loader:
                imgs = batch['image']
                true_masks = batch['mask']
                assert imgs.shape[1] == net.n_channels, \
                    f'the network wants {net.n_channels} channels, the images have {imgs.shape[1]}'
                imgs = imgs.to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
                true_masks = true_masks.to(device=device, dtype=torch.long)

                with torch.autocast(device.type, enabled=amp):
                    masks_pred = net(imgs)
                    one_hot = F.one_hot(true_masks, net.n_classes).permute(0, 3, 1, 2).float()
                    loss = ce(masks_pred, true_masks)
                    loss += dice_loss(F.softmax(masks_pred, dim=1).float(), one_hot, multiclass=True)
                epoch_loss += loss.item()
                pbar.set_postfix(**{'loss (batch)': loss.item()})

                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(net.parameters(), clip)
                scaler.step(optimizer)
                scaler.update()

                pbar.update(imgs.shape[0])
                global_step += 1
                if val_every > 0 and global_step % val_every == 0:
                    val_score, iou = evaluate(net, val_loader, device, amp)
                    scheduler.step(val_score)
                    logging.info('dice %.4f  IoU %s  lr %g' % (
                        val_score, ' '.join('%.3f' % v for v in iou), optimizer.param_groups[0]['lr']))

        logging.info(f'mean loss {epoch_loss / len(train_loader):.4f}')
        if save_cp:
            dir_checkpoint.mkdir(parents=True, exist_ok=True)
            state = net.state_dict()
            state['mask_values'] = dataset.mask_values
            torch.save(state, str(dir_checkpoint / f'CP_epoch{epoch + 1}.pth'))


def get_args():
    parser = argparse.ArgumentParser(description='Find squares and discs')
    parser.add_argument('--epochs', '-e', metavar='E', type=int, default=5)
    parser.add_argument('--batch-size', '-b', dest='batch_size', metavar='B', type=int, default=1)
    parser.add_argument('--learning-rate', '-l', metavar='LR', type=float, default=1e-5, dest='lr')
    parser.add_argument('--load', '-f', type=str, default=False, help='Load model from a .pth file')
    parser.add_argument('--scale', '-s', type=float, default=1.0)
    parser.add_argument('--validation', '-v', dest='val', type=float, default=10.0, help='percent (0-100)')
    parser.add_argument('--amp', action='store_true', default=False)
    parser.add_argument('--bilinear', action='store_true', default=False)
    parser.add_argument('--classes', '-c', type=int, default=3)
    return parser.parse_args()


if __name__ == '__main__':
    args = get_args()
    logging.basicConfig(level=logging.INFO, format='%(levelname)s: %(message)s')
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

    if not dir_img.exists():
        draw_examples(dir_img, dir_mask)

    net = UNet(n_channels=3, n_classes=args.classes, bilinear=args.bilinear)
    net = net.to(memory_format=torch.channels_last)
    logging.info(f'{net.n_channels} channels in, {net.n_classes} classes, '
                 f'{"bilinear" if net.bilinear else "transposed"} upscaling, on {device}')

    if args.load:
        state = torch.load(args.load, map_location=device)
        del state['mask_values']
        net.load_state_dict(state)
    net.to(device=device)

    try:
        train_net(net=net, epochs=args.epochs, batch_size=args.batch_size, lr=args.lr, device=device,
                  img_scale=args.scale, val_percent=args.val / 100, amp=args.amp)
    except KeyboardInterrupt:
        torch.save(net.state_dict(), 'INTERRUPTED.pth')
        logging.info('saved what there was')
        sys.exit(0)
