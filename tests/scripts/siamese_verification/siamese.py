import matplotlib.pyplot as plt
import numpy as np
import random
from PIL import Image
import torch
from torch.autograd import Variable
import torch.nn as nn
from torch import optim
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from sklearn.datasets import load_digits

plt.switch_backend("Agg")

## Helper functions
def imshow(img, name, text=None):
    plt.figure()
    plt.imshow(img.numpy(), cmap="gray")
    plt.axis("off")
    if text:
        plt.text(1, 3, text, fontweight='bold', bbox={'facecolor': 'white', 'alpha': 0.8})
    plt.savefig(name)
    plt.close()


def show_plot(iteration, loss):
    plt.figure()
    plt.plot(iteration, loss)
    plt.savefig("loss.png")


## Configuration
class Config():
    train_batch_size = 32
    train_number_epochs = 3
    pairs_per_epoch = 640
    margin = 1.5
    seed = 7


random.seed(Config.seed)
np.random.seed(Config.seed)
torch.manual_seed(Config.seed)

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


class PairDataset(Dataset):
    """two writers' digits; half of the pairs are of the same class"""

    def __init__(self, images, target, should_invert=True, n_pairs=None):
        self.images = 1 - images / 16. if should_invert else images / 16.
        self.target = target
        self.n_pairs = n_pairs

    def __getitem__(self, index):
        i0 = random.randrange(len(self.images))
        # we need to make sure approx 50% of images are in the same class
        should_get_same_class = random.randint(0, 1)
        while True:
            i1 = random.randrange(len(self.images))
            if (self.target[i0] == self.target[i1]) == bool(should_get_same_class):
                break
        img0 = torch.from_numpy(self.images[i0]).float().unsqueeze(0)
        img1 = torch.from_numpy(self.images[i1]).float().unsqueeze(0)
        return img0, img1, torch.from_numpy(np.array([int(self.target[i1] != self.target[i0])], dtype=np.float32))

    def __len__(self):
        return self.n_pairs or len(self.images)


class FixedPairs(Dataset):
    """test pairs, drawn once"""
    def __init__(self, base, n, seed=0):
        state = random.getstate()
        random.seed(seed)
        self.items = [base[0] for _ in range(n)]
        random.setstate(state)

    def __getitem__(self, i):
        return self.items[i]

    def __len__(self):
        return len(self.items)


class SiameseNetwork(nn.Module):
    def __init__(self):
        super(SiameseNetwork, self).__init__()
        self.cnn1 = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(1, 8, kernel_size=3),
            nn.ReLU(inplace=True),
            nn.BatchNorm2d(8),
            nn.ReflectionPad2d(1),
            nn.Conv2d(8, 16, kernel_size=3),
            nn.ReLU(inplace=True),
            nn.BatchNorm2d(16),
        )
        self.fc1 = nn.Sequential(
            nn.Linear(16 * 8 * 8, 64),
            nn.ReLU(inplace=True),
            nn.Linear(64, 5))

    def forward_once(self, x):
        output = self.cnn1(x)
        output = output.view(output.size()[0], -1)
        output = self.fc1(output)
        return output

    def forward(self, input1, input2):
        output1 = self.forward_once(input1)
        output2 = self.forward_once(input2)
        return output1, output2


class ContrastiveLoss(torch.nn.Module):
    """label 0: same, label 1: different"""

    def __init__(self, margin=2.0):
        super(ContrastiveLoss, self).__init__()
        self.margin = margin

    def forward(self, output1, output2, label):
        dist = F.pairwise_distance(output1, output2, keepdim=True)
        same = (1 - label) * torch.pow(dist, 2)
        different = label * torch.pow(torch.clamp(self.margin - dist, min=0.0), 2)
        return torch.mean(same + different)


digits = load_digits()
order = np.random.permutation(len(digits.target))
train_idx, test_idx = order[:1300], order[1300:]
siamese_dataset = PairDataset(digits.images[train_idx], digits.target[train_idx], should_invert=False,
                              n_pairs=Config.pairs_per_epoch)

vis_dataloader = DataLoader(siamese_dataset, shuffle=True, num_workers=0, batch_size=8)
dataiter = iter(vis_dataloader)
example_batch = next(dataiter)
concatenated = torch.cat((torch.cat(list(example_batch[0][:, 0]), 1), torch.cat(list(example_batch[1][:, 0]), 1)), 0)
imshow(concatenated, "examples.png")
print(example_batch[2].numpy().ravel())

train_dataloader = DataLoader(siamese_dataset, shuffle=True, num_workers=0, batch_size=Config.train_batch_size)

net = SiameseNetwork().to(device)
criterion = ContrastiveLoss(Config.margin)
optimizer = optim.Adam(net.parameters(), lr=0.0005)

counter = []
loss_history = []
iteration_number = 0

for epoch in range(0, Config.train_number_epochs):
    for i, data in enumerate(train_dataloader, 0):
        img0, img1, label = data
        img0, img1, label = img0.to(device), img1.to(device), label.to(device)
        optimizer.zero_grad()
        output1, output2 = net(img0, img1)
        loss_contrastive = criterion(output1, output2, label)
        loss_contrastive.backward()
        optimizer.step()
        if i % 10 == 0:
            print("Epoch number {}\n Current loss {}\n".format(epoch, loss_contrastive.item()))
            iteration_number += 10
            counter.append(iteration_number)
            loss_history.append(loss_contrastive.item())
show_plot(counter, loss_history)

# how well does a threshold tell them apart?
test_dataset = FixedPairs(PairDataset(digits.images[test_idx], digits.target[test_idx], should_invert=False), 150)
test_dataloader = DataLoader(test_dataset, num_workers=0, batch_size=1, shuffle=False)
net.eval()
distances, truths = [], []
with torch.no_grad():
    for x0, x1, label2 in test_dataloader:
        o1, o2 = net(x0.to(device), x1.to(device))
        euclidean_distance = F.pairwise_distance(o1, o2)
        distances.append(euclidean_distance.item())
        truths.append(label2.item())
distances, truths = np.array(distances), np.array(truths)
best = max((((distances > t) == truths).mean(), t) for t in np.linspace(distances.min(), distances.max(), 50))
print("accuracy %.3f at threshold %.3f (%d pairs)" % (best[0], best[1], len(truths)))
imshow(torch.cat((x0, x1), 3)[0, 0], "last_pair.png", "%.2f" % distances[-1])
torch.save(net.state_dict(), "siamese.pt")
