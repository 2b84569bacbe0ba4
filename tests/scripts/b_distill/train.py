"""Train the model"""

import argparse
import logging
import os

import numpy as np
import torch
import torch.optim as optim
from torch.autograd import Variable
from tqdm import tqdm

import data_loader
import net.mlp as net
import utils

parser = argparse.ArgumentParser()
parser.add_argument('--model_dir', default='experiments/base_model')
parser.add_argument('--restore_file', default=None)


def to_gpu(batch, params):
    if params.cuda:
        batch = [b.cuda() for b in batch]
    return [Variable(b) for b in batch]


def fmt(d):
    return " ; ".join("%s: %05.3f" % kv for kv in d.items())


def evaluate(model, loss_fn, dataloader, metrics, params):
    model.eval()
    rows = []
    with torch.no_grad():
        for batch in dataloader:
            x, y = to_gpu(batch, params)
            out = model(x)
            row = {name: fn(out, y) for name, fn in metrics.items()}
            row['loss'] = loss_fn(out, y).item()
            rows.append(row)
    mean = {k: np.mean([r[k] for r in rows]) for k in rows[0]}
    logging.info("- Eval metrics : " + fmt(mean))
    return mean


def train_epoch(model, optimizer, loss_fn, dataloader, metrics, params, teacher=None):
    model.train()
    loss_avg = utils.RunningAverage()
    rows = []
    with tqdm(total=len(dataloader)) as bar:
        for i, batch in enumerate(dataloader):
            x, y = to_gpu(batch, params)
            out = model(x)
            if teacher is None:
                loss = loss_fn(out, y)
            else:
                with torch.no_grad():
                    out_t = teacher(x)
                loss = net.loss_fn_kd(out, y, out_t, params)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            if i % params.save_summary_steps == 0:
                row = {name: fn(out, y) for name, fn in metrics.items()}
                row['loss'] = loss.item()
                rows.append(row)
            loss_avg.update(loss.item())
            bar.set_postfix(loss='%05.3f' % loss_avg())
            bar.update()
    logging.info("- Train metrics: " + fmt({k: np.mean([r[k] for r in rows]) for k in rows[0]}))


def fit(model, train_dl, val_dl, optimizer, scheduler, params, model_dir, restore_file=None, teacher=None):
    if restore_file is not None:
        utils.load_checkpoint(os.path.join(model_dir, restore_file + '.pth.tar'), model, optimizer)
    if teacher is not None:
        teacher.eval()
    best_acc = 0.0
    for epoch in range(1, params.num_epochs + 1):
        logging.info("Epoch %d/%d" % (epoch, params.num_epochs))
        train_epoch(model, optimizer, net.loss_fn, train_dl, net.metrics, params, teacher)
        scheduler.step()
        val = evaluate(model, net.loss_fn, val_dl, net.metrics, params)
        better = val['accuracy'] >= best_acc
        utils.save_checkpoint({'epoch': epoch, 'state_dict': model.state_dict(), 'optim_dict': optimizer.state_dict()},
                              better, model_dir)
        if better:
            best_acc = val['accuracy']
            logging.info("- new best")
            utils.save_dict_to_json(val, os.path.join(model_dir, "val_best.json"))
        utils.save_dict_to_json(val, os.path.join(model_dir, "val_last.json"))
    return best_acc


def build(model_dir):
    params = utils.Params(os.path.join(model_dir, 'params.json'))
    params.cuda = torch.cuda.is_available()
    model = net.Net(params).cuda() if params.cuda else net.Net(params)
    optimizer = optim.Adam(model.parameters(), lr=params.learning_rate)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.3)
    return params, model, optimizer, scheduler


if __name__ == '__main__':
    args = parser.parse_args()
    torch.manual_seed(230)
    if torch.cuda.is_available():
        torch.cuda.manual_seed(230)
    utils.set_logger(os.path.join(args.model_dir, 'train.log'))

    # 1. the teacher, once
    teacher_dir = os.path.join(os.path.dirname(args.model_dir), 'teacher')
    t_params, teacher, t_optim, t_sched = build(teacher_dir)
    dl = data_loader.fetch_dataloader(['train', 'dev'], t_params)
    teacher_ckpt = os.path.join(teacher_dir, 'best.pth.tar')
    if not os.path.exists(teacher_ckpt):
        logging.info("Training the teacher")
        fit(teacher, dl['train'], dl['dev'], t_optim, t_sched, t_params, teacher_dir)
    utils.load_checkpoint(teacher_ckpt, teacher)
    for p in teacher.parameters():
        p.requires_grad = False

    # 2. the student
    params, model, optimizer, scheduler = build(args.model_dir)
    logging.info("Student: {} parameters, teacher: {}".format(
        sum(p.numel() for p in model.parameters()), sum(p.numel() for p in teacher.parameters())))
    dl = data_loader.fetch_dataloader(['train', 'dev'], params)
    best = fit(model, dl['train'], dl['dev'], optimizer, scheduler, params, args.model_dir,
                              args.restore_file, teacher=teacher)
    logging.info("best student accuracy {:.4f}".format(best))
