import argparse
import glob
import logging
import os
import sys
import time

import numpy as np
import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
from torch.autograd import Variable

import utils
from network import Network

parser = argparse.ArgumentParser("digits")
parser.add_argument('--batch_size', type=int, default=60)
parser.add_argument('--learning_rate', type=float, default=0.05)
parser.add_argument('--momentum', type=float, default=0.9)
parser.add_argument('--weight_decay', type=float, default=3e-4)
parser.add_argument('--report_freq', type=float, default=8)
parser.add_argument('--gpu', type=int, default=0, help='gpu device id')
parser.add_argument('--epochs', type=int, default=600)
parser.add_argument('--init_channels', type=int, default=10)
parser.add_argument('--layers', type=int, default=3)
parser.add_argument('--auxiliary', action='store_true', default=False)
parser.add_argument('--auxiliary_weight', type=float, default=0.4)
parser.add_argument('--drop_path_prob', type=float, default=0.2)
parser.add_argument('--save', type=str, default='EXP')
parser.add_argument('--seed', type=int, default=0)
parser.add_argument('--grad_clip', type=float, default=5)
args = parser.parse_args()

args.save = 'eval-{}-{}'.format(args.save, time.strftime("%Y%m%d-%H%M%S"))
utils.create_exp_dir(args.save, scripts_to_save=glob.glob('*.py'))

fmt = '%(asctime)s %(message)s'
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format=fmt, datefmt='%m/%d %I:%M:%S %p')
fh = logging.FileHandler(os.path.join(args.save, 'log.txt'))
fh.setFormatter(logging.Formatter(fmt))
logging.getLogger().addHandler(fh)

CLASSES = 10
gpu = torch.cuda.is_available()


def main():
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    if gpu:
        torch.cuda.set_device(args.gpu)
        cudnn.benchmark = True
        cudnn.enabled = True
        torch.cuda.manual_seed(args.seed)
        logging.info('gpu device = %d' % args.gpu)
    logging.info("args = %s", args)

    model = Network(args.init_channels, CLASSES, args.layers, args.auxiliary)
    criterion = nn.CrossEntropyLoss()
    if gpu:
        model = model.cuda()
        criterion = criterion.cuda()
    logging.info("param size = %fMB", utils.count_parameters_in_MB(model))

    optimizer = torch.optim.SGD(model.parameters(), args.learning_rate, momentum=args.momentum,
                                weight_decay=args.weight_decay)
    train_data, valid_data = utils.digits()
    train_queue = torch.utils.data.DataLoader(train_data, batch_size=args.batch_size, shuffle=True, pin_memory=gpu)
    valid_queue = torch.utils.data.DataLoader(valid_data, batch_size=args.batch_size, shuffle=False, pin_memory=gpu)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, float(args.epochs))

    for epoch in range(args.epochs):
        logging.info('epoch %d lr %e', epoch, scheduler.get_last_lr()[0])
        model.drop_path_prob = args.drop_path_prob * epoch / args.epochs
        train_acc, train_obj = train(train_queue, model, criterion, optimizer)
        logging.info('train_acc %f', train_acc)
        valid_acc, valid_obj = infer(valid_queue, model, criterion)
        logging.info('valid_acc %f', valid_acc)
        scheduler.step()
        utils.save(model, os.path.join(args.save, 'weights.pt'))


def to_gpu(*tensors):
    return [t.cuda(non_blocking=True) if gpu else t for t in tensors]


def train(train_queue, model, criterion, optimizer):
    model.train()
    objs, top1 = utils.AvgMeter(), utils.AvgMeter()
    for step, (x, target) in enumerate(train_queue):
        x, target = to_gpu(Variable(x), Variable(target))
        logits, logits_aux = model(x)
        loss = criterion(logits, target)
        if args.auxiliary:
            loss = loss + args.auxiliary_weight * criterion(logits_aux, target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
        optimizer.step()
        objs.update(loss.item(), len(x))
        top1.update(utils.accuracy(logits, target)[0].item(), len(x))
        if step % args.report_freq == 0:
            logging.info('train %03d  loss %.4f  top1 %.2f', step, objs.avg, top1.avg)
    return top1.avg, objs.avg


@torch.no_grad()
def infer(valid_queue, model, criterion):
    model.eval()
    objs, top1, top5 = utils.AvgMeter(), utils.AvgMeter(), utils.AvgMeter()
    for x, target in valid_queue:
        x, target = to_gpu(x, target)
        logits, _ = model(x)
        p1, p5 = utils.accuracy(logits, target, topk=(1, 5))
        for meter, v in ((objs, criterion(logits, target)), (top1, p1), (top5, p5)):
            meter.update(v.item(), len(x))
    logging.info('valid  loss %.4f  top1 %.2f  top5 %.2f', objs.avg, top1.avg, top5.avg)
    return top1.avg, objs.avg


if __name__ == '__main__':
    main()
