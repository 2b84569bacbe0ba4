import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from collections import Counter
from torch.utils.data import DataLoader, Dataset

TOPICS = ['king queen castle throne crown', 'river boat fish water lake', 'bread cheese milk butter oven', 'train rail station ticket driver']
FILL = 'the a of and to in was'.split()


def make_corpus(n, seed=5):
    r = np.random.RandomState(seed)
    out = []
    for _ in range(n):
        words = TOPICS[r.randint(4)].split()
        out.append([words[r.randint(5)] if r.rand() < 0.6 else FILL[r.randint(7)] for _ in range(r.randint(6, 12))])
    return out


class PairData(Dataset):
    def __init__(self, corpus, window=2):
        self.freq = Counter(w for s in corpus for w in s)
        self.vocab = [w for w, _ in self.freq.most_common()]
        self.index = {w: i for i, w in enumerate(self.vocab)}
        self.pairs = []
        for s in corpus:
            ids = [self.index[w] for w in s]
            for i, c in enumerate(ids):
                for o in ids[max(0, i - window):i] + ids[i + 1:i + 1 + window]:
                    self.pairs.append((c, o))
        p = np.array([self.freq[w] for w in self.vocab]) ** 0.75
        self.noise = p / p.sum()

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        c, o = self.pairs[i]
        neg = np.random.choice(len(self.vocab), 5, p=self.noise)
        return c, o, neg

    @staticmethod
    def collate(batch):
        return (torch.LongTensor([b[0] for b in batch]), torch.LongTensor([b[1] for b in batch]),
                torch.LongTensor(np.stack([b[2] for b in batch])))


class SkipGram(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.u = nn.Embedding(n, dim, sparse=True)
        self.v = nn.Embedding(n, dim, sparse=True)
        nn.init.uniform_(self.u.weight, -0.5 / dim, 0.5 / dim)
        nn.init.constant_(self.v.weight, 0)

    def forward(self, center, outside, negative):
        u, v = self.u(center), self.v(outside)
        score = F.logsigmoid((u * v).sum(1).clamp(-10, 10))
        neg = F.logsigmoid(-torch.bmm(self.v(negative), u.unsqueeze(2)).squeeze(2).clamp(-10, 10)).sum(1)
        return -(score + neg).mean()

    def save_embedding(self, vocab, path):
        emb = self.u.weight.cpu().data.numpy()
        with open(path, 'w') as f:
            f.write('%d %d\n' % emb.shape)
            for w, e in zip(vocab, emb):
                f.write('%s %s\n' % (w, ' '.join('%.5f' % k for k in e)))


class Word2VecTrainer:
    def __init__(self, out='vectors.txt', dim=16, batch=128, epochs=2, lr=0.01):
        np.random.seed(0)
        torch.manual_seed(0)
        self.data = PairData(make_corpus(400))
        self.loader = DataLoader(self.data, batch_size=batch, shuffle=True, num_workers=0, collate_fn=self.data.collate)
        self.out, self.epochs, self.lr = out, epochs, lr
        self.model = SkipGram(len(self.data.vocab), dim)
        self.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        self.model.to(self.device)

    def train(self):
        for it in range(self.epochs):
            print('Iteration:', it + 1)
            optimizer = torch.optim.SparseAdam(list(self.model.parameters()), lr=self.lr)
            scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(self.loader))
            running = 0.0
            for i, batch in enumerate(self.loader):
                c, o, n = [b.to(self.device) for b in batch]
                optimizer.zero_grad()
                loss = self.model(c, o, n)
                loss.backward()
                optimizer.step()
                scheduler.step()
                running = running * 0.9 + loss.item() * 0.1
                if i > 0 and i % 30 == 0:
                    print(' loss: %.4f' % running)
            self.model.save_embedding(self.data.vocab, self.out)


if __name__ == '__main__':
    Word2VecTrainer().train()
