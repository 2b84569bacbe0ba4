'''
Train a transformer.
'''

import argparse
import math
import time
import os

from tqdm import tqdm
import numpy as np
import random

import torch
import torch.nn.functional as F
import torch.optim as optim

import transformer.Constants as Constants
from transformer.Models import Transformer
from transformer.Optim import ScheduledOptim
from dataset import TranslationDataset, collate_fn, make_pairs


def cal_loss(pred, gold, pad_idx, smoothing=False):
    ''' Sum over the words of the batch '''
    gold = gold.contiguous().view(-1)
    if smoothing:
        eps = 0.1
        n_class = pred.size(1)
        one_hot = torch.zeros_like(pred).scatter(1, gold.view(-1, 1), 1)
        one_hot = one_hot * (1 - eps) + (1 - one_hot) * eps / (n_class - 1)
        log_prb = F.log_softmax(pred, dim=1)
        non_pad_mask = gold.ne(pad_idx)
        loss = -(one_hot * log_prb).sum(dim=1)
        loss = loss.masked_select(non_pad_mask).sum()
    else:
        loss = F.cross_entropy(pred, gold, ignore_index=pad_idx, reduction='sum')
    return loss


def cal_performance(pred, gold, pad_idx, smoothing=False):
    loss = cal_loss(pred, gold, pad_idx, smoothing=smoothing)
    pred = pred.max(1)[1]
    gold = gold.contiguous().view(-1)
    non_pad_mask = gold.ne(pad_idx)
    n_correct = pred.eq(gold).masked_select(non_pad_mask).sum().item()
    n_word = non_pad_mask.sum().item()
    return loss, n_correct, n_word


def train_epoch(model, training_data, optimizer, opt, device, smoothing):
    model.train()
    total_loss, n_word_total, n_word_correct = 0, 0, 0

    desc = '  - (Training)   '
    for src_seq, trg_seq in tqdm(training_data, mininterval=2, desc=desc, leave=False):
        src_seq = src_seq.to(device)
        trg_seq, gold = trg_seq[:, :-1].to(device), trg_seq[:, 1:].to(device)

        optimizer.zero_grad()
        pred = model(src_seq, trg_seq)
        loss, n_correct, n_word = cal_performance(pred, gold, Constants.PAD, smoothing=smoothing)
        (loss / n_word).backward()
        optimizer.step_and_update_lr()

        n_word_total += n_word
        n_word_correct += n_correct
        total_loss += loss.item()

    return total_loss / n_word_total, n_word_correct / n_word_total


def eval_epoch(model, validation_data, device, opt):
    model.eval()
    total_loss, n_word_total, n_word_correct = 0, 0, 0

    desc = '  - (Validation) '
    with torch.no_grad():
        for src_seq, trg_seq in tqdm(validation_data, mininterval=2, desc=desc, leave=False):
            src_seq = src_seq.to(device)
            trg_seq, gold = trg_seq[:, :-1].to(device), trg_seq[:, 1:].to(device)
            pred = model(src_seq, trg_seq)
            loss, n_correct, n_word = cal_performance(pred, gold, Constants.PAD, smoothing=False)
            n_word_total += n_word
            n_word_correct += n_correct
            total_loss += loss.item()

    return total_loss / n_word_total, n_word_correct / n_word_total


def train(model, training_data, validation_data, optimizer, device, opt):
    log_train_file = os.path.join(opt.output_dir, 'train.log')
    log_valid_file = os.path.join(opt.output_dir, 'valid.log')
    print('[Info] logs go to {} and {}'.format(log_train_file, log_valid_file))

    with open(log_train_file, 'w') as log_tf, open(log_valid_file, 'w') as log_vf:
        log_tf.write('epoch,loss,ppl,accuracy\n')
        log_vf.write('epoch,loss,ppl,accuracy\n')

    def print_performances(header, ppl, accu, start_time, lr):
        print('  - {:12} ppl: {: 8.5f}, accuracy: {:3.3f} %, lr: {:8.5f}, elapse: {:3.3f} min'.format(
            f"({header})", ppl, 100 * accu, lr, (time.time() - start_time) / 60))

    valid_losses = []
    for epoch_i in range(opt.epoch):
        print('[ Epoch', epoch_i, ']')

        start = time.time()
        train_loss, train_accu = train_epoch(
            model, training_data, optimizer, opt, device, smoothing=opt.label_smoothing)
        train_ppl = math.exp(min(train_loss, 100))
        lr = optimizer._optimizer.param_groups[0]['lr']
        print_performances('Training', train_ppl, train_accu, start, lr)

        start = time.time()
        valid_loss, valid_accu = eval_epoch(model, validation_data, device, opt)
        valid_ppl = math.exp(min(valid_loss, 100))
        print_performances('Validation', valid_ppl, valid_accu, start, lr)

        valid_losses += [valid_loss]

        checkpoint = {'epoch': epoch_i, 'settings': opt, 'model': model.state_dict()}
        if opt.save_mode == 'all':
            model_name = 'model_accu_{accu:3.3f}.chkpt'.format(accu=100 * valid_accu)
            torch.save(checkpoint, os.path.join(opt.output_dir, model_name))
        elif opt.save_mode == 'best':
            if valid_loss <= min(valid_losses):
                torch.save(checkpoint, os.path.join(opt.output_dir, 'model.chkpt'))
                print('    - [Info] checkpoint updated')

        with open(log_train_file, 'a') as log_tf, open(log_valid_file, 'a') as log_vf:
            log_tf.write('{},{:8.5f},{:8.5f},{:3.3f}\n'.format(epoch_i, train_loss, train_ppl, 100 * train_accu))
            log_vf.write('{},{:8.5f},{:8.5f},{:3.3f}\n'.format(epoch_i, valid_loss, valid_ppl, 100 * valid_accu))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('-epoch', type=int, default=10)
    parser.add_argument('-b', '--batch_size', type=int, default=2048)
    parser.add_argument('-d_model', type=int, default=32)
    parser.add_argument('-d_inner_hid', type=int, default=64)
    parser.add_argument('-n_head', type=int, default=4)
    parser.add_argument('-n_layers', type=int, default=1)
    parser.add_argument('-warmup', '--n_warmup_steps', type=int, default=4000)
    parser.add_argument('-lr_mul', type=float, default=1.0)
    parser.add_argument('-seed', type=int, default=None)
    parser.add_argument('-dropout', type=float, default=0.1)
    parser.add_argument('-output_dir', type=str, default=None)
    parser.add_argument('-save_mode', type=str, choices=['all', 'best'], default='best')
    parser.add_argument('-no_cuda', action='store_true')
    parser.add_argument('-label_smoothing', action='store_true')

    opt = parser.parse_args()
    opt.cuda = not opt.no_cuda

    # python train.py -seed 1 for the same numbers every time
    if opt.seed is not None:
        torch.manual_seed(opt.seed)
        np.random.seed(opt.seed)
        random.seed(opt.seed)

    if not opt.output_dir:
        print('No experiment result will be saved.')
        raise SystemExit

    if not os.path.exists(opt.output_dir):
        os.makedirs(opt.output_dir)

    if opt.batch_size < 2048 and opt.n_warmup_steps <= 4000:
        print('[Warning] the warm up may be too short for so small a batch')

    device = torch.device('cuda' if opt.cuda and torch.cuda.is_available() else 'cpu')

    train_set = TranslationDataset(make_pairs(900, 1))
    training_data = torch.utils.data.DataLoader(
        train_set, batch_size=opt.batch_size, shuffle=True, collate_fn=collate_fn)
    validation_data = torch.utils.data.DataLoader(
        TranslationDataset(make_pairs(150, 2)), batch_size=opt.batch_size, collate_fn=collate_fn)
    print(opt)

    transformer = Transformer(
        train_set.vocab_size, train_set.vocab_size,
        d_model=opt.d_model, d_inner=opt.d_inner_hid,
        n_layers=opt.n_layers, n_head=opt.n_head, dropout=opt.dropout).to(device)

    optimizer = ScheduledOptim(
        optim.Adam(transformer.parameters(), betas=(0.9, 0.98), eps=1e-09),
        opt.lr_mul, opt.d_model, opt.n_warmup_steps)

    train(transformer, training_data, validation_data, optimizer, device, opt)


if __name__ == '__main__':
    main()
