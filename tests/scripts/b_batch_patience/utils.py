# coding: UTF-8
import os
import pickle as pkl
import random
import time
from datetime import timedelta

import torch

WORDS = ['股票 基金 银行 涨 跌 利率 上市', '比赛 球队 进球 冠军 联赛 教练 主场', '明星 电影 综艺 票房 导演 演唱会 新剧',
         '高考 学校 老师 志愿 考试 招生 大学', '手机 芯片 发布 软件 网络 机器人 升级']
COMMON = '今天 消息 最新 公司 中国 北京 记者 表示 大家 关注 再次 或 将 被 与 新 大 小 年 月'.split()


def fake_file(path, n, seed):
    rnd = random.Random(seed)
    with open(path, 'w', encoding='UTF-8') as f:
        for _ in range(n):
            k = rnd.randrange(5)
            ws = [rnd.choice(COMMON) for _ in range(rnd.randint(3, 12))]
            ws += [rnd.choice(WORDS[k].split()) for _ in range(rnd.randint(1, 2))]
            if rnd.random() < 0.25:
                ws.append(rnd.choice(WORDS[rnd.randrange(5)].split()))
            rnd.shuffle(ws)
            f.write(' '.join(ws) + '\t' + str(k) + '\n')


def build_dataset(config):
    paths = {}
    for name, n, seed in (('train', 640, 1), ('dev', 150, 2), ('test', 133, 3)):
        paths[name] = os.path.join(config.data_path, name + '.txt')
        if not os.path.exists(paths[name]):
            fake_file(paths[name], n, seed)

    vocab_path = os.path.join(config.data_path, 'vocab.pkl')
    if os.path.exists(vocab_path):
        vocab = pkl.load(open(vocab_path, 'rb'))
    else:
        vocab = {'<PAD>': 0, '<UNK>': 1}
        for line in open(paths['train'], encoding='UTF-8'):
            for w in line.split('\t')[0].split():
                vocab.setdefault(w, len(vocab))
        pkl.dump(vocab, open(vocab_path, 'wb'))
    print(f"词表大小: {len(vocab)}")

    def load(path):
        contents = []
        with open(path, 'r', encoding='UTF-8') as f:
            for line in f:
                content, label = line.strip().split('\t')
                ids = [vocab.get(w, 1) for w in content.split()][:config.pad_size]
                seq_len = len(ids)
                ids += [0] * (config.pad_size - seq_len)
                contents.append((ids, int(label), seq_len))
        return contents

    return vocab, load(paths['train']), load(paths['dev']), load(paths['test'])


class BatchIter(object):
    def __init__(self, samples, batch_size, device):
        self.samples = samples
        self.batch_size = batch_size
        self.device = device
        self.n_batches = (len(samples) + batch_size - 1) // batch_size
        self.index = 0

    def _to_tensor(self, rows):
        x = torch.LongTensor([r[0] for r in rows]).to(self.device)
        y = torch.LongTensor([r[1] for r in rows]).to(self.device)
        seq_len = torch.LongTensor([r[2] for r in rows]).to(self.device)
        return (x, seq_len), y

    def __next__(self):
        if self.index >= self.n_batches:
            self.index = 0
            raise StopIteration
        rows = self.samples[self.index * self.batch_size:(self.index + 1) * self.batch_size]
        self.index += 1
        return self._to_tensor(rows)

    def __iter__(self):
        return self

    def __len__(self):
        return self.n_batches


def build_iterator(dataset, config):
    return BatchIter(dataset, config.batch_size, config.device)


def elapsed(start_time):
    return timedelta(seconds=int(round(time.time() - start_time)))
