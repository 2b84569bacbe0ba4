import argparse
import os
import torch
from exp.exp_main import Exp_Main
import random
import numpy as np

fix_seed = 2021
random.seed(fix_seed)
torch.manual_seed(fix_seed)
np.random.seed(fix_seed)

parser = argparse.ArgumentParser(description='forecasting')

# basic config
parser.add_argument('--is_training', type=int, default=1, help='status')
parser.add_argument('--model_id', type=str, default='toy', help='model id')
parser.add_argument('--model', type=str, default='LSTM', help='model name, options: [LSTM, DLinear]')

# data
parser.add_argument('--data', type=str, default='custom')
parser.add_argument('--root_path', type=str, default='./dataset/')
parser.add_argument('--data_path', type=str, default='load.csv')
parser.add_argument('--target', type=str, default='OT')
parser.add_argument('--checkpoints', type=str, default='./checkpoints/')
parser.add_argument('--seq_len', type=int, default=48)
parser.add_argument('--label_len', type=int, default=24)
parser.add_argument('--pred_len', type=int, default=12)

# model
parser.add_argument('--enc_in', type=int, default=4)
parser.add_argument('--d_model', type=int, default=64)
parser.add_argument('--dropout', type=float, default=0.05)

# optimization
parser.add_argument('--num_workers', type=int, default=0)
parser.add_argument('--itr', type=int, default=1, help='experiments times')
parser.add_argument('--train_epochs', type=int, default=10)
parser.add_argument('--batch_size', type=int, default=32)
parser.add_argument('--patience', type=int, default=3)
parser.add_argument('--learning_rate', type=float, default=0.005)
parser.add_argument('--des', type=str, default='test')
parser.add_argument('--lradj', type=str, default='type1')
parser.add_argument('--use_amp', action='store_true', default=False)

# GPU
parser.add_argument('--use_gpu', type=bool, default=True)
parser.add_argument('--gpu', type=int, default=0)
parser.add_argument('--use_multi_gpu', action='store_true', default=False)
parser.add_argument('--devices', type=str, default='0,1')

args = parser.parse_args()
args.use_gpu = True if torch.cuda.is_available() and args.use_gpu else False

if args.use_gpu and args.use_multi_gpu:
    args.devices = args.devices.replace(' ', '')
    args.device_ids = [int(id_) for id_ in args.devices.split(',')]
    args.gpu = args.device_ids[0]

print('Args in experiment:')
print(args)

Exp = Exp_Main

if args.is_training:
    for ii in range(args.itr):
        # setting record of experiments
        setting = '{}_{}_{}_sl{}_ll{}_pl{}_dm{}_{}_{}'.format(
            args.model_id, args.model, args.data, args.seq_len, args.label_len, args.pred_len,
            args.d_model, args.des, ii)

        exp = Exp(args)  # set experiments
        print('>>>>>>>start training : {}>>>>>>>>>>>>>>>>>>>>>>>>>>'.format(setting))
        exp.train(setting)

        print('>>>>>>>testing : {}<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<'.format(setting))
        exp.test(setting)
        torch.cuda.empty_cache()
else:
    setting = '{}_{}_{}_sl{}_ll{}_pl{}_dm{}_{}_0'.format(
        args.model_id, args.model, args.data, args.seq_len, args.label_len, args.pred_len, args.d_model, args.des)
    exp = Exp(args)
    exp.test(setting, test=1)
