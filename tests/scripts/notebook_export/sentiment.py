#!/usr/bin/env python
# coding: utf-8

# # Sentiment of short reviews with a bidirectional LSTM
# 
# The reviews are made up from a few words.

# In[1]:


# get_ipython().run_line_magic('matplotlib', 'inline')
import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader
from torch.nn.utils.rnn import pad_sequence, pack_padded_sequence
from collections import Counter
from sklearn.metrics import classification_report, confusion_matrix
import random, time, os


# In[2]:


good = "great lovely superb warm clever moving fresh perfect charming".split()
bad = "dull awful weak cold stupid flat noisy broken boring".split()
fill = "the a film plot actor music scene ending was is and with very quite rather not really some".split()

def make_review(label):
    n = random.randint(5, 22)
    words = [random.choice(fill) for _ in range(n)]
    for _ in range(random.randint(1, 3)):
        own = good if label else bad
        other = bad if label else good
        words[random.randrange(n)] = random.choice(own if random.random() < 0.9 else other)
    return ' '.join(words)

if not os.path.exists('reviews.csv'):
    labels = [random.randint(0, 1) for _ in range(900)]
    df = pd.DataFrame({'review': [make_review(l) for l in labels], 'sentiment': labels})
    df.to_csv('reviews.csv', index=False)
df = pd.read_csv('reviews.csv')
df.head()


# In[3]:


df['sentiment'].value_counts()


# In[4]:


df['len'] = df['review'].apply(lambda r: len(r.split()))
df['len'].hist(bins=15)
plt.savefig('lengths.png')
# plt.show()


# In[5]:


counter = Counter(w for r in df['review'] for w in r.split())
vocab = {'<pad>': 0, '<unk>': 1}
for w, c in counter.most_common():
    vocab[w] = len(vocab)
len(vocab)


# In[6]:


class ReviewDataset(Dataset):
    def __init__(self, frame):
        self.x = [torch.tensor([vocab.get(w, 1) for w in r.split()]) for r in frame['review']]
        self.y = torch.tensor(frame['sentiment'].values, dtype=torch.float32)
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        return self.x[i], self.y[i]

def collate(batch):
    batch = sorted(batch, key=lambda b: -len(b[0]))
    xs, ys = zip(*batch)
    return pad_sequence(xs, batch_first=True), torch.tensor([len(x) for x in xs]), torch.stack(ys)

df = df.sample(frac=1).reset_index(drop=True)
train_df, valid_df, test_df = df[:600], df[600:750], df[750:]

BATCH_SIZE = 32
train_dl = DataLoader(ReviewDataset(train_df), batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate)
valid_dl = DataLoader(ReviewDataset(valid_df), batch_size=BATCH_SIZE, collate_fn=collate)
test_dl = DataLoader(ReviewDataset(test_df), batch_size=BATCH_SIZE, collate_fn=collate)


# In[7]:


xb, lens, yb = next(iter(train_dl))
xb.shape, lens[:5], yb[:5]


# In[8]:


device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
device


# In[9]:


class Net(nn.Module):
    def __init__(self, vocab_size, emb=16, hid=16):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, emb, padding_idx=0)
        self.lstm = nn.LSTM(emb, hid, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(2 * hid, 1)

    def forward(self, x, lens):
        packed = pack_padded_sequence(self.emb(x), lens, batch_first=True)
        _, (h, _) = self.lstm(packed)
        return self.out(self.drop(torch.cat([h[-2], h[-1]], 1))).squeeze(1)

model = Net(len(vocab))
model = model.to(device)
model


# In[10]:


sum(p.numel() for p in model.parameters() if p.requires_grad)


# In[11]:


criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

def binary_accuracy(preds, y):
    rounded = torch.round(torch.sigmoid(preds))
    correct = (rounded == y).float()
    return correct.sum() / len(correct)


# In[12]:


EPOCHS = 5
history = {'train_loss': [], 'train_acc': [], 'valid_loss': [], 'valid_acc': []}
best_valid_loss = float('inf')

for epoch in range(EPOCHS):
    start = time.time()

    epoch_loss = 0
    epoch_acc = 0
    model.train()
    for xb, lens, yb in train_dl:
        xb, yb = xb.to(device), yb.to(device)
        optimizer.zero_grad()
        predictions = model(xb, lens)
        loss = criterion(predictions, yb)
        acc = binary_accuracy(predictions, yb)
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item()
        epoch_acc += acc.item()
    train_loss, train_acc = epoch_loss / len(train_dl), epoch_acc / len(train_dl)

    epoch_loss = 0
    epoch_acc = 0
    model.eval()
    with torch.no_grad():
        for xb, lens, yb in valid_dl:
            xb, yb = xb.to(device), yb.to(device)
            predictions = model(xb, lens)
            loss = criterion(predictions, yb)
            acc = binary_accuracy(predictions, yb)
            epoch_loss += loss.item()
            epoch_acc += acc.item()
    valid_loss, valid_acc = epoch_loss / len(valid_dl), epoch_acc / len(valid_dl)

    for k, v in zip(history, [train_loss, train_acc, valid_loss, valid_acc]):
        history[k].append(v)
    if valid_loss < best_valid_loss:
        best_valid_loss = valid_loss
        torch.save(model.state_dict(), 'sentiment-model.pt')

    print(f'Epoch: {epoch+1:02} | {time.time() - start:.2f}s')
    print(f'\tTrain Loss: {train_loss:.3f} | Train Acc: {train_acc*100:.2f}%')
    print(f'\t Val. Loss: {valid_loss:.3f} |  Val. Acc: {valid_acc*100:.2f}%')


# In[13]:


plt.figure()
plt.plot(history['train_loss'], label='train')
plt.plot(history['valid_loss'], label='valid')
plt.legend()
plt.savefig('loss.png')


# In[14]:


model.load_state_dict(torch.load('sentiment-model.pt'))
model.eval()
y_true, y_pred = [], []
with torch.no_grad():
    for xb, lens, yb in test_dl:
        p = torch.sigmoid(model(xb.to(device), lens))
        y_pred += (p > 0.5).long().cpu().tolist()
        y_true += yb.long().tolist()
print(classification_report(y_true, y_pred, digits=3))
print(confusion_matrix(y_true, y_pred))


# In[15]:


def predict(sentence):
    ids = torch.tensor([[vocab.get(w, 1) for w in sentence.lower().split()]]).to(device)
    return torch.sigmoid(model(ids, torch.tensor([ids.shape[1]]))).item()

predict("a great film with lovely music")


# In[16]:


print(predict("a great film with lovely music"), predict("the plot was dull and the ending awful"))


# In[ ]:




