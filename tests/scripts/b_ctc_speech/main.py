import os
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch.utils.data as data
import numpy as np

from textutil import TextTransform, cer, wer

WORDS = ["yes", "no", "on", "off", "go", "stop", "up", "left"]


class FakeSpeech(data.Dataset):
    """each character is a tone of its own, 2-4 frames long, in noise"""

    def __init__(self, n, seed, n_feats=16, noise=0.25):
        rng = np.random.RandomState(seed)
        codes = np.random.RandomState(0).randn(28, n_feats).astype(np.float32)
        tt = TextTransform()
        self.items = []
        for _ in range(n):
            text = " ".join(rng.choice(WORDS, size=rng.randint(1, 4)))
            frames = []
            for c in tt.text_to_int(text):
                frames += [codes[c - 1]] * rng.randint(3, 6)
            spec = np.stack(frames) + noise * rng.randn(len(frames), n_feats)
            self.items.append((torch.tensor(spec, dtype=torch.float32), text))

    def __getitem__(self, i):
        return self.items[i]

    def __len__(self):
        return len(self.items)


text_transform = TextTransform()
BLANK = 28


def collate(batch, kind):
    specs, labels, in_lens, out_lens = [], [], [], []
    for spec, text in batch:
        if kind == 'train':
            # mask two neighbouring bands
            spec = spec.clone()
            f0 = torch.randint(0, spec.size(1) - 2, (1,)).item()
            spec[:, f0:f0 + 2] = 0
        ids = torch.tensor(text_transform.text_to_int(text))
        specs.append(spec)
        labels.append(ids)
        in_lens.append(len(spec))
        out_lens.append(len(ids))
    pad = nn.utils.rnn.pad_sequence
    return pad(specs, batch_first=True), pad(labels, batch_first=True), in_lens, out_lens


class SpeechModel(nn.Module):
    def __init__(self, n_feats, rnn_dim, n_class, dropout=0.1):
        super().__init__()
        self.conv = nn.Conv1d(n_feats, rnn_dim, 3, padding=1)
        self.bn = nn.BatchNorm1d(rnn_dim)
        self.rnn = nn.GRU(rnn_dim, rnn_dim, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(rnn_dim * 2, n_class)

    def forward(self, x):
        h = F.relu(self.bn(self.conv(x.transpose(1, 2)))).transpose(1, 2)
        h, _ = self.rnn(h)
        return F.log_softmax(self.out(self.drop(h)), dim=2)


def greedy(logp, labels, label_lengths):
    """collapse repeats, drop blanks"""
    hyps, refs = [], []
    for best, ref, n in zip(logp.argmax(2).tolist(), labels, label_lengths):
        ids = [k for t, k in enumerate(best) if k != BLANK and (t == 0 or best[t - 1] != k)]
        hyps.append(text_transform.int_to_text(ids))
        refs.append(text_transform.int_to_text(ref[:n].tolist()))
    return hyps, refs


class IterMeter(object):
    def __init__(self):
        self.val = 0

    def step(self):
        self.val += 1


def train(model, device, loader, criterion, optimizer, scheduler, epoch, it, log):
    model.train()
    n = len(loader.dataset)
    for batch_idx, (spec, labels, in_lens, out_lens) in enumerate(loader):
        spec, labels = spec.to(device), labels.to(device)
        optimizer.zero_grad()
        logp = model(spec)
        loss = criterion(logp.permute(1, 0, 2), labels, in_lens, out_lens)   # CTC wants (T, B, C)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.)
        optimizer.step()
        scheduler.step()
        it.step()
        log.append(('loss', loss.item(), it.val))
        log.append(('lr', scheduler.get_last_lr()[0], it.val))
        if batch_idx % 5 == 0:
            print('Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.4f}'.format(
                epoch, batch_idx * len(spec), n, 100. * batch_idx / len(loader), loss.item()))


def test(model, device, loader, criterion, it, log):
    model.eval()
    test_loss = 0
    all_cer, all_wer = [], []
    shown = False
    with torch.no_grad():
        for spec, labels, in_lens, out_lens in loader:
            spec, labels = spec.to(device), labels.to(device)
            logp = model(spec)
            test_loss += criterion(logp.permute(1, 0, 2), labels, in_lens, out_lens).item() / len(loader)
            hyps, refs = greedy(logp, labels, out_lens)
            for h, r in zip(hyps, refs):
                all_cer.append(cer(r, h))
                all_wer.append(wer(r, h))
            if not shown:
                print('   ref: %s\n   hyp: %s' % (refs[0], hyps[0]))
                shown = True
    avg_cer = sum(all_cer) / len(all_cer)
    avg_wer = sum(all_wer) / len(all_wer)
    for k, v in (('test_loss', test_loss), ('cer', avg_cer), ('wer', avg_wer)):
        log.append((k, v, it.val))
    print('Test: loss %.4f  CER %.4f  WER %.4f\n' % (test_loss, avg_cer, avg_wer))
    return avg_wer


def main(learning_rate=1e-3, batch_size=20, epochs=10):
    hparams = dict(rnn_dim=48, n_class=29, n_feats=16, dropout=0.1,
                   learning_rate=learning_rate, batch_size=batch_size, epochs=epochs)
    torch.manual_seed(7)
    use_cuda = torch.cuda.is_available()
    device = torch.device("cuda" if use_cuda else "cpu")

    train_dataset = FakeSpeech(420, seed=1)
    test_dataset = FakeSpeech(71, seed=2)
    kwargs = {'num_workers': 1, 'pin_memory': True} if use_cuda else {}
    train_loader = data.DataLoader(train_dataset, batch_size=hparams['batch_size'], shuffle=True,
                                   collate_fn=lambda b: collate(b, 'train'), **kwargs)
    test_loader = data.DataLoader(test_dataset, batch_size=hparams['batch_size'], shuffle=False,
                                  collate_fn=lambda b: collate(b, 'valid'), **kwargs)

    model = SpeechModel(hparams['n_feats'], hparams['rnn_dim'], hparams['n_class'], hparams['dropout']).to(device)
    print('Num Model Parameters', sum([param.nelement() for param in model.parameters()]))
    optimizer = optim.AdamW(model.parameters(), hparams['learning_rate'])
    criterion = nn.CTCLoss(blank=BLANK, zero_infinity=True).to(device)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=hparams['learning_rate'],
                                              steps_per_epoch=int(len(train_loader)),
                                              epochs=hparams['epochs'], anneal_strategy='linear')
    it = IterMeter()
    log = []
    best = 1e9
    for epoch in range(1, epochs + 1):
        train(model, device, train_loader, criterion, optimizer, scheduler, epoch, it, log)
        w = test(model, device, test_loader, criterion, it, log)
        if w < best:
            best = w
            torch.save(model.state_dict(), 'speech.pth')
    with open('metrics.txt', 'w') as f:
        for row in log:
            f.write('%s\t%.6f\t%d\n' % row)


if __name__ == "__main__":
    main(learning_rate=2e-2, batch_size=20, epochs=6)
