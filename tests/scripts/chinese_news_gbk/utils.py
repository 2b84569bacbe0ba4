# coding: GBK
import os
import time
import random
import pickle as pkl
from datetime import timedelta

import torch
from tqdm import tqdm

MAX_VOCAB_SIZE = 10000  # 最多收这么多字
UNK, PAD = '<UNK>', '<PAD>'  # 生字和填充


def make_news(dataset):
    """没有下载数据，就自己造一点标题"""
    if os.path.exists(dataset):
        return
    topics = {'体育': '球赛冠军队员教练进球联赛', '财经': '股市银行基金利率上涨投资', '娱乐': '明星电影演唱导演票房歌手', '科技': '芯片手机网络软件机器数据'}
    common = '今天的在了是有和中国一大新发布表示将为与'
    rng = random.Random(0)
    os.makedirs(dataset + '/saved_dict')
    for name, words in topics.items():
        os.makedirs(dataset + '/data/' + name)
        for part, n in (('train', 150), ('dev', 33), ('test', 40)):
            with open('%s/data/%s/%s.txt' % (dataset, name, part), 'w', encoding='utf-8') as f:
                for _ in range(n):
                    title = ''.join(rng.choice(words if rng.random() < 0.4 else common) for _ in range(rng.randint(6, 20)))
                    f.write(title + '\n')


def build_vocab(paths, tokenizer, max_size):
    chars = set()
    for path in paths:
        for line in open(path, 'r', encoding='UTF-8'):
            chars |= set(tokenizer(line.strip()))
    vocab = {c: i for i, c in enumerate(list(chars)[:max_size])}
    vocab.update({UNK: len(vocab), PAD: len(vocab) + 1})
    return vocab


def build_dataset(config, use_word):
    tokenizer = (lambda x: x.split(' ')) if use_word else (lambda x: [y for y in x])
    if os.path.exists(config.vocab_path):
        vocab = pkl.load(open(config.vocab_path, 'rb'))
    else:
        vocab = build_vocab(['%s/%s/train.txt' % (config.data_dir, c) for c in config.class_list], tokenizer, MAX_VOCAB_SIZE)
        pkl.dump(vocab, open(config.vocab_path, 'wb'))
    print(f"Vocab size: {len(vocab)}")

    def load_dataset(part, pad_size):
        contents = []
        for label, name in enumerate(config.class_list):
            for line in tqdm(open('%s/%s/%s.txt' % (config.data_dir, name, part), 'r', encoding='UTF-8')):
                token = tokenizer(line.strip())
                seq_len = min(len(token), pad_size)
                token = token[:pad_size] + [PAD] * (pad_size - len(token))
                contents.append(([vocab.get(w, vocab.get(UNK)) for w in token], label, seq_len))
        return contents
    train = load_dataset('train', config.pad_size)
    random.seed(1)
    random.shuffle(train)
    return vocab, train, load_dataset('dev', config.pad_size), load_dataset('test', config.pad_size)


class BatchIter(object):
    """自己写的迭代器，数据本来就小，直接切片再搬到显卡上"""
    def __init__(self, items, bs, device):
        self.items = items
        self.bs = bs
        self.device = device
        self.pos = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.pos >= len(self.items):
            self.pos = 0   # 下一轮从头开始
            raise StopIteration
        part = self.items[self.pos:self.pos + self.bs]
        self.pos += self.bs
        ids, labels, lens = zip(*part)
        x = torch.LongTensor(ids).to(self.device)
        y = torch.LongTensor(labels).to(self.device)
        return (x, torch.LongTensor(lens).to(self.device)), y

    def __len__(self):
        n = len(self.items) // self.bs
        return n if len(self.items) % self.bs == 0 else n + 1


def build_iterator(dataset, config):
    return BatchIter(dataset, config.batch_size, config.device)


def get_time_dif(start_time):
    """到现在花了多久"""
    return timedelta(seconds=int(round(time.time() - start_time)))
