"""Character language model: an LSTM trained by truncated back-propagation through time.

    torchrun --nproc-per-node=2 ddp.py

The columns of a batch are dealt to the processes: --batch-size stays the size of the whole batch.
"""
import argparse
import math
import os
import random
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


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
        self.init_distributed()
        torch.manual_seed(args.seed)
        self.corpus = Corpus()
        if args.batch_size % self.world_size:
            raise SystemExit(f"--batch-size {args.batch_size} does not divide by {self.world_size} processes")
        self.columns = args.batch_size // self.world_size
        train_data = batchify(self.corpus.train, args.batch_size)
        first = self.rank * self.columns
        self.train_data = train_data[:, :, first : first + self.columns].contiguous().to(self.device)
        self.val_data = batchify(self.corpus.valid, 10)[:, :, self.rank :: self.world_size].contiguous().to(self.device)
        self.raw_model = RNNModel(len(self.corpus.chars), args.emsize, args.nhid, args.dropout).to(self.device)
        self.model = self.raw_model
        if self.distributed:
            device_ids = [self.local_rank] if self.device.type == "cuda" else None
            self.model = DistributedDataParallel(self.raw_model, device_ids=device_ids)
        # dropout differs between the processes
        torch.manual_seed(args.seed + self.rank)
        self.criterion = nn.CrossEntropyLoss(ignore_index=-100, reduction="sum")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer, factor=0.5, patience=0, threshold=0.04
        )
        self.best = math.inf

    def init_distributed(self):
        self.rank = int(os.environ.get("RANK", 0))
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        self.world_size = int(os.environ.get("WORLD_SIZE", 1))
        self.distributed = "RANK" in os.environ
        cuda = torch.cuda.is_available()
        self.device = torch.device(f"cuda:{self.local_rank}" if cuda else "cpu")
        if cuda:
            torch.cuda.set_device(self.device)
        if self.distributed:
            dist.init_process_group(backend="nccl" if cuda else "gloo")

    def log(self, *args):
        if self.rank == 0:
            print(*args)

    def all_reduce(self, tensor):
        if self.distributed:
            dist.all_reduce(tensor)
        return tensor

    def get_batch(self, source, i):
        seq_len = min(self.args.bptt, source.size(1) - 1 - i)
        data = source[0, i : i + seq_len]
        target = source[1, i + 1 : i + 1 + seq_len]
        return data, target.reshape(-1)

    def train_epoch(self, epoch):
        self.model.train()
        total_loss = 0.0
        hidden = self.raw_model.init_hidden(self.columns)
        for batch, i in enumerate(range(0, self.train_data.size(1) - 1, self.args.bptt)):
            data, targets = self.get_batch(self.train_data, i)
            hidden = repackage(hidden)
            self.optimizer.zero_grad()
            output, hidden = self.model(data, hidden)
            # the mean over the scored characters of all processes: each has another number of them
            loss = self.criterion(output.view(-1, output.size(-1)), targets)
            scored = self.all_reduce((targets != -100).sum())
            (loss * self.world_size / scored).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
            self.optimizer.step()
            total_loss += (loss.detach() / scored).item()
            if (batch + 1) % self.args.log_interval == 0:
                shared = torch.tensor(total_loss, dtype=torch.float64, device=self.device)
                cur_loss = self.all_reduce(shared).item() / self.args.log_interval
                self.log(f"| epoch {epoch} | {batch + 1:3d} batches | loss {cur_loss:5.3f} | ppl {math.exp(cur_loss):6.3f}")
                total_loss = 0.0

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        nll, count = 0.0, 0
        hidden = self.raw_model.init_hidden(self.val_data.size(2))
        for i in range(0, self.val_data.size(1) - 1, self.args.bptt):
            data, targets = self.get_batch(self.val_data, i)
            output, hidden = self.raw_model(data, hidden)
            scored = (targets != -100).sum().item()
            nll += self.criterion(output.view(-1, output.size(-1)), targets).item()
            count += scored
        nll, count = self.all_reduce(torch.tensor([nll, count], dtype=torch.float64, device=self.device)).tolist()
        return nll / count

    def run(self):
        for epoch in range(1, self.args.epochs + 1):
            start = time.time()
            self.train_epoch(epoch)
            val_loss = self.evaluate()
            self.scheduler.step(val_loss)
            self.log("-" * 60)
            self.log(f"| end of epoch {epoch} | time: {time.time() - start:5.2f}s | valid loss {val_loss:5.3f} "
                     f"| valid ppl {math.exp(val_loss):8.3f} | lr {self.optimizer.param_groups[0]['lr']:.3f}")
            self.log("-" * 60)
            if val_loss < self.best:
                self.best = val_loss
                if self.rank == 0:
                    with open(self.args.save, "wb") as f:
                        torch.save(self.raw_model.state_dict(), f)

        if self.distributed:
            dist.barrier()
        with open(self.args.save, "rb") as f:
            self.raw_model.load_state_dict(torch.load(f, map_location=self.device))
        loss = self.evaluate()
        self.log(f"| end of training | best loss {loss:5.3f} | best ppl {math.exp(loss):8.3f}")
        if self.distributed:
            dist.destroy_process_group()


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
