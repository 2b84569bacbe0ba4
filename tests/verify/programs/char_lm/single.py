"""Character language model: an LSTM trained by truncated back-propagation through time."""
import argparse
import math
import random
import time

import torch
import torch.nn as nn


def make_corpus(sentences, seed):
    """A toy language with nesting, one sentence a line; lines in brackets are remarks."""
    rng = random.Random(seed)
    nouns = ["cat", "dog", "bird", "child", "teacher", "robot"]
    verbs = ["sees", "likes", "follows", "hears", "paints"]
    places = ["in the garden", "near the river", "on the roof", "at school"]

    def phrase(depth):
        noun = rng.choice(nouns)
        if depth < 2 and rng.random() < 0.3:
            return f"the {noun} that {rng.choice(verbs)} {phrase(depth + 1)}"
        return f"the {noun}"

    lines = []
    for _ in range(sentences):
        line = f"{phrase(0)} {rng.choice(verbs)} {phrase(1)}"
        if rng.random() < 0.5:
            line += " " + rng.choice(places)
        if rng.random() < 0.3:
            line = f"[{line}]"
        lines.append(line)
    return "\n".join(lines) + "\n"


class Corpus:
    def __init__(self):
        text = make_corpus(1100, seed=3)
        self.chars = sorted(set(text))
        index = {c: i for i, c in enumerate(self.chars)}
        ids = torch.tensor([index[c] for c in text])
        # remarks are read, but their characters are not to be predicted
        opened = (ids == index["["]).cumsum(0) > (ids == index["]"]).cumsum(0)
        targets = ids.masked_fill(opened, -100)
        cut = int(len(ids) * 0.9)
        self.train = torch.stack([ids[:cut], targets[:cut]])
        self.valid = torch.stack([ids[cut:], targets[cut:]])


def batchify(data, bsz):
    """Lay text and targets out in bsz columns."""
    nbatch = data.size(1) // bsz
    return data[:, : nbatch * bsz].view(2, bsz, -1).transpose(1, 2).contiguous()


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, dropout):
        super().__init__()
        self.nhid = nhid
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid)
        self.decoder = nn.Linear(nhid, ntoken)

    def forward(self, inputs, hidden):
        emb = self.drop(self.encoder(inputs))
        output, hidden = self.rnn(emb, hidden)
        return self.decoder(self.drop(output)), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return weight.new_zeros(1, bsz, self.nhid), weight.new_zeros(1, bsz, self.nhid)


def repackage(hidden):
    return tuple(h.detach() for h in hidden)


class Trainer:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.corpus = Corpus()
        self.train_data = batchify(self.corpus.train, args.batch_size).to(self.device)
        self.val_data = batchify(self.corpus.valid, 10).to(self.device)
        self.model = RNNModel(len(self.corpus.chars), args.emsize, args.nhid, args.dropout).to(self.device)
        self.criterion = nn.CrossEntropyLoss(ignore_index=-100)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer, factor=0.5, patience=0, threshold=0.04
        )
        self.best = math.inf

    def get_batch(self, source, i):
        seq_len = min(self.args.bptt, source.size(1) - 1 - i)
        data = source[0, i : i + seq_len]
        target = source[1, i + 1 : i + 1 + seq_len]
        return data, target.reshape(-1)

    def train_epoch(self, epoch):
        self.model.train()
        total_loss = 0.0
        hidden = self.model.init_hidden(self.args.batch_size)
        for batch, i in enumerate(range(0, self.train_data.size(1) - 1, self.args.bptt)):
            data, targets = self.get_batch(self.train_data, i)
            hidden = repackage(hidden)
            self.optimizer.zero_grad()
            output, hidden = self.model(data, hidden)
            loss = self.criterion(output.view(-1, output.size(-1)), targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
            self.optimizer.step()
            total_loss += loss.item()
            if (batch + 1) % self.args.log_interval == 0:
                cur_loss = total_loss / self.args.log_interval
                print(f"| epoch {epoch} | {batch + 1:3d} batches | loss {cur_loss:5.3f} | ppl {math.exp(cur_loss):6.3f}")
                total_loss = 0.0

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        nll, count = 0.0, 0
        hidden = self.model.init_hidden(self.val_data.size(2))
        for i in range(0, self.val_data.size(1) - 1, self.args.bptt):
            data, targets = self.get_batch(self.val_data, i)
            output, hidden = self.model(data, hidden)
            scored = (targets != -100).sum().item()
            nll += self.criterion(output.view(-1, output.size(-1)), targets).item() * scored
            count += scored
        return nll / count

    def run(self):
        for epoch in range(1, self.args.epochs + 1):
            start = time.time()
            self.train_epoch(epoch)
            val_loss = self.evaluate()
            self.scheduler.step(val_loss)
            print("-" * 60)
            print(f"| end of epoch {epoch} | time: {time.time() - start:5.2f}s | valid loss {val_loss:5.3f} "
                  f"| valid ppl {math.exp(val_loss):8.3f} | lr {self.optimizer.param_groups[0]['lr']:.3f}")
            print("-" * 60)
            if val_loss < self.best:
                self.best = val_loss
                with open(self.args.save, "wb") as f:
                    torch.save(self.model.state_dict(), f)

        with open(self.args.save, "rb") as f:
            self.model.load_state_dict(torch.load(f, map_location=self.device))
        loss = self.evaluate()
        print(f"| end of training | best loss {loss:5.3f} | best ppl {math.exp(loss):8.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--bptt", type=int, default=24)
    parser.add_argument("--emsize", type=int, default=16)
    parser.add_argument("--nhid", type=int, default=48)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=4.0)
    parser.add_argument("--clip", type=float, default=0.5)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--log-interval", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1111)
    parser.add_argument("--save", default="model.pt")
    Trainer(parser.parse_args()).run()
