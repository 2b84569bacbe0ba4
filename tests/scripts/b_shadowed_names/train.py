from nets import *
import torch, time, random, sys
import torch.optim as op
from torch.utils.data import DataLoader as DL, TensorDataset as TD
from sklearn.datasets import make_classification
from sklearn.metrics import f1_score

# 6 classes, half of the features are noise
x, y = make_classification(1537, 20, n_informative=9, n_redundant=2, n_classes=6, class_sep=1.6, random_state=0)
x = torch.tensor(x).float(); y = torch.tensor(y)
rank = torch.argsort(torch.rand(len(x)))      # random order
x, y = x[rank], y[rank]
cut = 1200
train, test = TD(x[:cut], y[:cut]), TD(x[cut:], y[cut:])
data = {'train': DL(train, 40, True), 'test': DL(test, 100)}

dev = 'cuda' if torch.cuda.is_available() else 'cpu'
log = []
best, patience, wait, stop = 0, 3, 0, False

model = net(20, 6).to(dev)
optim = op.Adam(model.parameters(), lr=4e-3)
lossf = CrossEntropyLoss()
dist = torch.zeros(6)       # how often each class was predicted


def fit(loader, train=True):
    global dist
    sum, n, right = 0., 0, 0.
    model.train(train)
    preds, truth = [], []
    with torch.set_grad_enabled(train):
        for input, target in loader:
            input, target = input.to(dev), target.to(dev)
            out = model(input)
            loss = lossf(out, target)
            if train: optim.zero_grad(); loss.backward(); optim.step()
            else:
                dist += torch.bincount(out.argmax(1).cpu(), minlength=6)
                preds += out.argmax(1).tolist(); truth += target.tolist()
            b = target.shape[0]
            sum += loss.item() * b; n += b
            right += accuracy(out, target)
    if train: return sum / n, right / n
    return sum / n, right / n, f1_score(truth, preds, average='macro')


epoch = 0
while not stop:
    t = time.time()
    tl, ta = fit(data['train'])
    dist.zero_()
    vl, va, f1 = fit(data['test'], False)
    log.append((tl, ta, vl, va))
    print(f'{epoch:3} train {tl:.3f}/{ta:.3f}  test {vl:.3f}/{va:.3f}  f1 {f1:.3f}  {dist.int().tolist()}  {time.time()-t:.1f}s')
    if f1 > best: best = f1; wait = 0; torch.save(model, 'model.bin')
    else: wait += 1
    epoch += 1
    if wait >= patience or epoch >= 14: stop = True

with open('log.txt', 'w') as f:
    for i, row in enumerate(log): print(i, *['%.4f' % v for v in row], file=f)
print('best f1', round(best, 4), 'after', epoch, 'epochs'); sys.exit(0)
