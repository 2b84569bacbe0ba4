import argparse
import os

import numpy as np
import torch
from tqdm import tqdm

from dataloaders import make_data_loader
from modeling import SegNet
from tools import Evaluator, PolyScheduler, Saver, SegmentationLosses, TensorboardSummary


class Trainer(object):
    def __init__(self, args):
        self.args = args
        self.saver = Saver(args)
        self.saver.save_experiment_config()
        self.writer = TensorboardSummary(self.saver.experiment_dir).create_summary()
        self.best = 0.0

        # data, network, loss, optimizer
        self.train_loader, self.val_loader, self.nclass = make_data_loader(args)
        self.evaluator = Evaluator(self.nclass)
        net = SegNet(self.nclass)
        self.optimizer = torch.optim.SGD([
            {'params': net.get_1x_lr_params(), 'lr': args.lr},
            {'params': net.get_10x_lr_params(), 'lr': args.lr * 10},
        ], momentum=args.momentum, weight_decay=args.weight_decay)
        self.criterion = SegmentationLosses(cuda=args.cuda).build_loss(args.loss_type)
        self.scheduler = PolyScheduler(args.lr, args.epochs, len(self.train_loader))
        if args.cuda:
            net = torch.nn.DataParallel(net, device_ids=args.gpu_ids).cuda()
        self.model = net
        if args.resume:
            self.resume(args.resume)

    def plain_model(self):
        return self.model.module if self.args.cuda else self.model

    def resume(self, path):
        if not os.path.isfile(path):
            raise RuntimeError('no such checkpoint: ' + path)
        ckpt = torch.load(path)
        self.plain_model().load_state_dict(ckpt['state_dict'])
        self.optimizer.load_state_dict(ckpt['optimizer'])
        self.args.start_epoch = ckpt['epoch']
        self.best = ckpt['best_pred']

    def unpack(self, sample):
        image, target = sample['image'], sample['label']
        if self.args.cuda:
            image, target = image.cuda(), target.cuda()
        return image, target

    def training(self, epoch):
        self.model.train()
        total, n = 0.0, 0
        bar = tqdm(self.train_loader)
        for i, sample in enumerate(bar):
            image, target = self.unpack(sample)
            self.scheduler(self.optimizer, i, epoch)
            out = self.model(image)
            loss = self.criterion(out, target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            n += len(image)
            bar.set_description('train %.3f' % (total / (i + 1)))
            self.writer.add_scalar('train/iter', loss.item(), i + len(self.train_loader) * epoch)
        self.writer.add_scalar('train/epoch', total, epoch)
        print('epoch %d: %d images, summed loss %.3f' % (epoch, n, total))

    def validation(self, epoch):
        self.model.eval()
        self.evaluator.reset()
        total = 0.0
        for sample in tqdm(self.val_loader, desc='val'):
            image, target = self.unpack(sample)
            with torch.no_grad():
                out = self.model(image)
            total += self.criterion(out, target).item()
            pred = np.argmax(out.data.cpu().numpy(), axis=1)
            self.evaluator.add_batch(target.cpu().numpy(), pred)

        result = {'acc': self.evaluator.Pixel_Accuracy(),
                  'mIoU': self.evaluator.Mean_Intersection_over_Union(),
                  'fwIoU': self.evaluator.Frequency_Weighted_Intersection_over_Union(),
                  'loss': total / len(self.val_loader)}
        for tag in result:
            self.writer.add_scalar('val/' + tag, result[tag], epoch)
        print('validation  ' + '  '.join('%s %.4f' % kv for kv in result.items()))
        if result['mIoU'] > self.best:
            self.best = result['mIoU']
            self.saver.save_checkpoint({'epoch': epoch + 1, 'state_dict': self.plain_model().state_dict(),
                                        'optimizer': self.optimizer.state_dict(), 'best_pred': self.best}, True)


def main():
    parser = argparse.ArgumentParser(description="PyTorch segmentation training")
    parser.add_argument('--dataset', type=str, default='shapes')
    parser.add_argument('--loss-type', type=str, default='ce', choices=['ce', 'focal'])
    parser.add_argument('--epochs', type=int, default=None)
    parser.add_argument('--start_epoch', type=int, default=0)
    parser.add_argument('--batch-size', type=int, default=None)
    parser.add_argument('--lr', type=float, default=0.02)
    parser.add_argument('--momentum', type=float, default=0.9)
    parser.add_argument('--weight-decay', type=float, default=5e-4)
    parser.add_argument('--no-cuda', action='store_true', default=False)
    parser.add_argument('--gpu-ids', type=str, default='0')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--resume', type=str, default=None)
    parser.add_argument('--checkname', type=str, default='segnet')
    args = parser.parse_args()
    args.cuda = not args.no_cuda and torch.cuda.is_available()
    if args.cuda:
        args.gpu_ids = [int(s) for s in args.gpu_ids.split(',')]
    if args.epochs is None:
        args.epochs = {'shapes': 20}[args.dataset]
    if args.batch_size is None:
        args.batch_size = 8 * (len(args.gpu_ids) if args.cuda else 1)
    print(args)
    torch.manual_seed(args.seed)
    trainer = Trainer(args)
    print('Starting Epoch:', trainer.args.start_epoch)
    for epoch in range(trainer.args.start_epoch, trainer.args.epochs):
        trainer.training(epoch)
        trainer.validation(epoch)
    trainer.writer.close()


if __name__ == "__main__":
    main()
