import argparse
import datetime
import importlib
import logging
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

import provider
from data_utils.solids import NAMES, SolidsDataset

BASE_DIR = os.path.dirname(os.path.abspath(__file__))
ROOT_DIR = BASE_DIR
sys.path.append(os.path.join(ROOT_DIR, 'models'))


def parse_args():
    parser = argparse.ArgumentParser('training')
    parser.add_argument('--use_cpu', action='store_true', default=False)
    parser.add_argument('--gpu', type=str, default='0', help='specify gpu device')
    parser.add_argument('--batch_size', type=int, default=24)
    parser.add_argument('--model', default='pointnet_small')
    parser.add_argument('--epoch', default=200, type=int)
    parser.add_argument('--learning_rate', default=0.003, type=float)
    parser.add_argument('--num_point', type=int, default=96)
    parser.add_argument('--log_dir', type=str, default=None, help='experiment root')
    return parser.parse_args()


def inplace_relu(m):
    if m.__class__.__name__.find('ReLU') != -1:
        m.inplace = True


def bn_momentum_adjust(m, momentum):
    if isinstance(m, (torch.nn.BatchNorm2d, torch.nn.BatchNorm1d)):
        m.momentum = momentum


def test(net, loader, num_class, use_cpu):
    net.eval()
    per_batch = []
    table = np.zeros((num_class, 3))        # sum of accuracies, batches, mean
    for pts, target in tqdm(loader, total=len(loader)):
        if not use_cpu:
            pts, target = pts.cuda(), target.cuda()
        pred, _ = net(pts.transpose(2, 1))
        choice = pred.data.max(1)[1]
        for c in np.unique(target.cpu()):
            of_class = target == c
            table[c, 0] += (choice[of_class] == c).float().mean().item()
            table[c, 1] += 1
        per_batch.append((choice == target).sum().item() / float(len(target)))
    table[:, 2] = table[:, 0] / table[:, 1]
    return np.mean(per_batch), table[:, 2].mean(), table[:, 2]


def main(args):
    def log_string(s):
        logger.info(s)
        print(s)

    os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu
    args.use_cpu = args.use_cpu or not torch.cuda.is_available()

    timestr = str(datetime.datetime.now().strftime('%Y-%m-%d_%H-%M'))
    exp_dir = Path('./log/classification') / (args.log_dir or timestr)
    checkpoints_dir = exp_dir / 'checkpoints'
    log_dir = exp_dir / 'logs'
    for d in (checkpoints_dir, log_dir):
        d.mkdir(parents=True, exist_ok=True)

    logger = logging.getLogger("Model")
    logger.setLevel(logging.INFO)
    file_handler = logging.FileHandler('%s/%s.txt' % (log_dir, args.model))
    file_handler.setFormatter(logging.Formatter('%(asctime)s - %(name)s - %(levelname)s - %(message)s'))
    logger.addHandler(file_handler)
    log_string('PARAMETER ...')
    log_string(args)

    train_dataset = SolidsDataset(500, args.num_point, 'train')
    test_dataset = SolidsDataset(130, args.num_point, 'test')
    trainDataLoader = torch.utils.data.DataLoader(train_dataset, batch_size=args.batch_size, shuffle=True, drop_last=True)
    testDataLoader = torch.utils.data.DataLoader(test_dataset, batch_size=args.batch_size, shuffle=False)

    model = importlib.import_module(args.model)
    shutil.copy('./models/%s.py' % args.model, str(exp_dir))
    shutil.copy('./train_classification.py', str(exp_dir))
    classifier = model.get_model(len(NAMES))
    criterion = model.get_loss()
    classifier.apply(inplace_relu)
    if not args.use_cpu:
        classifier = classifier.cuda()
        criterion = criterion.cuda()

    try:
        checkpoint = torch.load(str(exp_dir) + '/checkpoints/best_model.pth', weights_only=False)
        start_epoch = checkpoint['epoch']
        classifier.load_state_dict(checkpoint['model_state_dict'])
        log_string('Use pretrain model')
    except:
        log_string('No existing model, starting training from scratch...')
        start_epoch = 0

    optimizer = torch.optim.Adam(classifier.parameters(), lr=args.learning_rate, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.7)
    best = {'instance': 0.0, 'class': 0.0}
    global_step = 0
    for epoch in range(start_epoch, args.epoch):
        log_string('Epoch %d/%d (step %d)' % (epoch + 1, args.epoch, global_step))
        momentum = max(0.1 * 0.5 ** (epoch // 3), 0.01)
        classifier.apply(lambda m: bn_momentum_adjust(m, momentum))
        classifier.train()
        accs = []
        for batch_id, (points, target) in tqdm(enumerate(trainDataLoader), total=len(trainDataLoader), smoothing=0.9):
            points = points.numpy()
            points = provider.random_point_dropout(points)
            points = provider.shift(provider.random_scale(points))
            points = torch.Tensor(points).transpose(2, 1)
            if not args.use_cpu:
                points, target = points.cuda(), target.cuda()
            optimizer.zero_grad()
            pred, trans_feat = classifier(points)
            loss = criterion(pred, target.long(), trans_feat)
            loss.backward()
            optimizer.step()
            accs.append((pred.data.max(1)[1] == target).sum().item() / float(points.size(0)))
            global_step += 1
        scheduler.step()
        log_string('train accuracy %f' % np.mean(accs))

        with torch.no_grad():
            instance_acc, class_acc, each = test(classifier, testDataLoader, len(NAMES), args.use_cpu)
        log_string('test accuracy %f, by class %f   (%s)' % (
            instance_acc, class_acc, ' '.join('%s %.3f' % p for p in zip(NAMES, each))))
        best['class'] = max(best['class'], class_acc)
        if instance_acc >= best['instance']:
            best['instance'] = instance_acc
            savepath = str(checkpoints_dir / 'best_model.pth')
            log_string('Saving at %s' % savepath)
            torch.save({'epoch': epoch + 1, 'instance_acc': instance_acc, 'class_acc': class_acc,
                        'model_state_dict': classifier.state_dict(),
                        'optimizer_state_dict': optimizer.state_dict()}, savepath)
    log_string('best: %s' % best)
    logger.info('End of training...')


if __name__ == '__main__':
    main(parse_args())
