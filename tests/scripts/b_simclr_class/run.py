import argparse
import torch
import torch.backends.cudnn as cudnn

from contrastive import Contrastive
from data_aug.two_views import ContrastiveDigits
from models.encoder import Encoder
from probe import linear_probe

parser = argparse.ArgumentParser(description='contrastive pretraining')
parser.add_argument('-a', '--arch', default='mlp')
parser.add_argument('-j', '--workers', default=0, type=int)
parser.add_argument('--epochs', default=200, type=int)
parser.add_argument('-b', '--batch-size', default=256, type=int)
parser.add_argument('--lr', '--learning-rate', default=0.002, type=float, dest='lr')
parser.add_argument('--wd', '--weight-decay', default=1e-4, type=float, dest='weight_decay')
parser.add_argument('--seed', default=None, type=int)
parser.add_argument('--disable-cuda', action='store_true')
parser.add_argument('--fp16-precision', action='store_true')
parser.add_argument('--out_dim', default=16, type=int)
parser.add_argument('--log-every-n-steps', default=10, type=int)
parser.add_argument('--temperature', default=0.2, type=float)
parser.add_argument('--n-views', default=2, type=int)
parser.add_argument('--gpu-index', default=0, type=int)


def main():
    args = parser.parse_args()
    assert args.n_views == 2, "Only two view training is supported."
    if not args.disable_cuda and torch.cuda.is_available():
        args.device = torch.device('cuda')
        cudnn.deterministic = True
        cudnn.benchmark = True
    else:
        args.device = torch.device('cpu')
        args.gpu_index = -1
    if args.seed is not None:
        torch.manual_seed(args.seed)

    train_dataset = ContrastiveDigits(train=True)
    train_loader = torch.utils.data.DataLoader(
        train_dataset, batch_size=args.batch_size, shuffle=True,
        num_workers=args.workers, pin_memory=args.gpu_index >= 0, drop_last=True)

    model = Encoder(out_dim=args.out_dim)
    optimizer = torch.optim.Adam(model.parameters(), args.lr, weight_decay=args.weight_decay)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(train_loader), eta_min=0, last_epoch=-1)

    # no-op if gpu_index is negative
    with torch.cuda.device(args.gpu_index):
        c = Contrastive(model=model, optimizer=optimizer, scheduler=scheduler, args=args)
        path = c.train(train_loader)
    linear_probe(path, args)


if __name__ == "__main__":
    main()
