# Support ticket router: which team gets the ticket?
# bag of embeddings + one linear layer, good enough
import random
import string
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, random_split

EPOCHS = 6
BATCH = 32
LR = 4.0
EMB = 24
LOG_EVERY = 10
dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")

TEAMS = ["billing", "network", "hardware", "account"]
KEYWORDS = {
    "billing": ["invoice", "refund", "charged", "card", "price", "receipt", "tax", "paid"],
    "network": ["wifi", "slow", "router", "offline", "ping", "vpn", "dns", "timeout"],
    "hardware": ["screen", "keyboard", "battery", "fan", "broken", "noise", "hot", "cable"],
    "account": ["password", "login", "email", "locked", "reset", "username", "2fa", "profile"],
}
SMALL_TALK = ("hi hello i we my your the a is was and but since yesterday today please help thanks "
              "can not does it again still after update what should do very").split()


def fake_tickets(n, rng):
    tickets = []
    for _ in range(n):
        team = rng.choice(TEAMS)
        n_words = rng.randint(5, 28)
        words = []
        while len(words) < n_words:
            dice = rng.random()
            if dice < .2:
                words.append(rng.choice(KEYWORDS[team]))
            elif dice < .28:
                words.append(rng.choice(KEYWORDS[rng.choice(TEAMS)]))
            else:
                words.append(rng.choice(SMALL_TALK))
        text = " ".join(words)
        if rng.random() < .5:
            text = text.capitalize() + rng.choice("!?.")
        tickets.append((TEAMS.index(team), text))
    return tickets


table = str.maketrans("", "", string.punctuation)


def tokenize(s):
    return s.lower().translate(table).split()


rng = random.Random(11)
all_tickets = fake_tickets(1261, rng)
test_tickets = fake_tickets(333, rng)

# vocab: only words seen twice, 0 is <unk>
counts = {}
for _, text in all_tickets:
    for tok in tokenize(text):
        counts[tok] = counts.get(tok, 0) + 1
vocab = {"<unk>": 0}
for tok, c in sorted(counts.items(), key=lambda kv: -kv[1]):
    if c >= 2:
        vocab[tok] = len(vocab)
print("vocab:", len(vocab))


def encode(s):
    return [vocab.get(t, 0) for t in tokenize(s)]


def collate(samples):
    labels = torch.tensor([y for y, _ in samples])
    ids = [torch.tensor(encode(t), dtype=torch.long) for _, t in samples]
    lens = [0] + [len(i) for i in ids]
    offsets = torch.tensor(lens[:-1]).cumsum(0)
    return torch.cat(ids).to(dev), offsets.to(dev), labels.to(dev)


n_val = int(0.1 * len(all_tickets))
train_set, val_set = random_split(all_tickets, [len(all_tickets) - n_val, n_val])
train_dl = DataLoader(train_set, batch_size=BATCH, shuffle=True, collate_fn=collate)
val_dl = DataLoader(val_set, batch_size=BATCH, shuffle=True, collate_fn=collate)
test_dl = DataLoader(test_tickets, batch_size=BATCH, collate_fn=collate)


class Router(nn.Module):
    def __init__(self, n_tokens, dim, n_out):
        super().__init__()
        self.bag = nn.EmbeddingBag(n_tokens, dim)
        self.out = nn.Linear(dim, n_out)
        for p in self.parameters():
            nn.init.uniform_(p, -0.3, 0.3)

    def forward(self, ids, offsets):
        return self.out(self.bag(ids, offsets))


model = Router(len(vocab), EMB, len(TEAMS)).to(dev)
loss_fn = nn.CrossEntropyLoss()
opt = torch.optim.SGD(model.parameters(), lr=LR)
sched = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.2)


def train_one(dl, epoch):
    model.train()
    total_acc, total_count = 0, 0
    t0 = time.time()
    for i, (ids, offsets, labels) in enumerate(dl):
        opt.zero_grad()
        logits = model(ids, offsets)
        loss = loss_fn(logits, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.2)
        opt.step()
        total_acc += (logits.argmax(1) == labels).sum().item()
        total_count += len(labels)
        if i and i % LOG_EVERY == 0:
            ms = 1000 * (time.time() - t0) / LOG_EVERY
            print(f"  epoch {epoch} batch {i:>3}/{len(dl)}  acc {total_acc / total_count:.3f}  {ms:.1f} ms/batch")
            total_acc, total_count = 0, 0
            t0 = time.time()


def evaluate(dl):
    model.eval()
    total_acc, total_count = 0, 0
    with torch.no_grad():
        for ids, offsets, labels in dl:
            logits = model(ids, offsets)
            total_acc += (logits.argmax(1) == labels).sum().item()
            total_count += len(labels)
    return total_acc / total_count


best = None
for epoch in range(1, EPOCHS + 1):
    train_one(train_dl, epoch)
    acc = evaluate(val_dl)
    # lower the lr only when validation got worse
    if best is not None and acc < best:
        sched.step()
    else:
        best = acc
    print(f"epoch {epoch} done, val acc {acc:.3f}, lr {opt.param_groups[0]['lr']:.3f}")

print(f"test acc {evaluate(test_dl):.3f}")

model = model.to("cpu")
for q in ["I was charged twice please refund", "the router is slow again", "fan noise, battery hot"]:
    with torch.no_grad():
        k = model(torch.tensor(encode(q)), torch.tensor([0])).argmax(1).item()
    print(f"{q!r} -> {TEAMS[k]}")
