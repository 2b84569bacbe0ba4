import numpy as np
import torch
from torch import nn
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix

from minikeras.callbacks import CSVLogger, EarlyStopping, HoldoutCheckpoint, LRSchedule
from minikeras.model import Model

X, Y = load_digits(return_X_y=True)
X = (X / 16).astype('float32')
order = np.random.permutation(len(X))
X, Y = X[order], Y[order]
x_train, y_train = X[:1200], Y[:1200]
x_hold, y_hold = X[1200:1450], Y[1200:1450]
x_test, y_test = X[1450:], Y[1450:]

net = nn.Sequential(
    nn.Linear(64, 100), nn.BatchNorm1d(100), nn.ReLU(), nn.Dropout(0.3),
    nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 10))

model = Model(net)
model.compile(optimizer=lambda p: torch.optim.Adam(p, lr=3e-3),
              loss=nn.CrossEntropyLoss(),
              metrics={'acc': lambda out, y: (out.argmax(1) == y).float().mean()})
history = model.fit(x_train, y_train, epochs=10, batch_size=40, validation_split=0.15, callbacks=[
    CSVLogger('history.csv'),
    LRSchedule(lambda epoch, lr: lr * 0.85),
    HoldoutCheckpoint(x_hold, y_hold, 'holdout.pt'),
    EarlyStopping('val_loss', patience=1),
])
model.evaluate(x_test, y_test)
pred = model.predict(x_test).argmax(1)
cm = confusion_matrix(y_test, pred)
print('worst class:', int((np.diag(cm) / cm.sum(1)).argmin()), ' errors:', int(len(pred) - np.trace(cm)))
np.savetxt('test_predictions.txt', np.c_[y_test, pred], fmt='%d')
