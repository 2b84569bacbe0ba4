import torch
import torch.nn.functional as F
from torch.nn import BatchNorm1d, Linear, ReLU, Sequential

from graph_data import DataLoader, Molecules

dataset = Molecules().shuffle()
n = len(dataset) // 10
test_dataset = dataset[:n]
val_dataset = dataset[n:2 * n]
train_dataset = dataset[2 * n:]
train_loader = DataLoader(train_dataset, batch_size=32, shuffle=True)
val_loader = DataLoader(val_dataset, batch_size=32)
test_loader = DataLoader(test_dataset, batch_size=32)


def scatter_sum(src, index, size):
    return torch.zeros(size, src.size(1), device=src.device).index_add_(0, index, src)


class GINConv(torch.nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.eps = torch.nn.Parameter(torch.zeros(1))
        self.nn = Sequential(Linear(2 * n_in, n_out), BatchNorm1d(n_out), ReLU(), Linear(n_out, n_out), ReLU())

    def forward(self, x, edge_index):
        row, col = edge_index
        first = scatter_sum(x[col], row, x.size(0))
        second = scatter_sum(first[col], row, x.size(0)) - first      # neighbours of neighbours
        return self.nn(torch.cat([(1 + self.eps) * x + first, second], 1))


class Net(torch.nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.convs = torch.nn.ModuleList([GINConv(dataset.num_features, dim), GINConv(dim, dim), GINConv(dim, dim)])
        self.lin1 = Linear(3 * dim, dim)
        self.lin2 = Linear(dim, dataset.num_classes)

    def forward(self, x, edge_index, batch, num_graphs):
        pooled = []
        for conv in self.convs:
            x = conv(x, edge_index)
            pooled.append(scatter_sum(x, batch, num_graphs))
        x = F.relu(self.lin1(torch.cat(pooled, 1)))
        x = F.dropout(x, p=0.3, training=self.training)
        return F.log_softmax(self.lin2(x), dim=-1)


device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)


def train(epoch):
    model.train()
    if epoch == 9:
        for g in optimizer.param_groups:
            g['lr'] = 0.5 * g['lr']
    loss_all = 0
    for data in train_loader:
        data = data.to(device)
        optimizer.zero_grad()
        output = model(data.x, data.edge_index, data.batch, data.num_graphs)
        loss = F.nll_loss(output, data.y)
        loss.backward()
        loss_all += loss.item() * data.num_graphs
        optimizer.step()
    return loss_all / len(train_dataset)


@torch.no_grad()
def test(loader):
    model.eval()
    correct = 0
    for data in loader:
        data = data.to(device)
        pred = model(data.x, data.edge_index, data.batch, data.num_graphs).max(dim=1)[1]
        correct += pred.eq(data.y).sum().item()
    return correct / len(loader.dataset)


best_val = test_at_best = 0
for epoch in range(1, 13):
    loss = train(epoch)
    tr, va, te = test(train_loader), test(val_loader), test(test_loader)
    if va > best_val:
        best_val, test_at_best = va, te
    print('Epoch: {:03d}, Loss: {:.5f}, Train: {:.4f}, Val: {:.4f}, Test: {:.4f}'.format(epoch, loss, tr, va, te))
print('test accuracy where validation was best: {:.4f}'.format(test_at_best))
