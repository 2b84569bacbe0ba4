"""Classifier whose weights are moved by hand, by momentum kept beside them; noise is drawn for each batch."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(5)
points = torch.randn(192, 10)
labels = (points.sum(1, keepdim=True) > 0).float()
loader = DataLoader(TensorDataset(points, labels), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
criterion = nn.BCEWithLogitsLoss()
momentum = [torch.zeros_like(p) for p in model.parameters()]

for epoch in range(3):
    for x, y in loader:
        model.zero_grad()
        loss = criterion(model(x + 0.1 * torch.randn_like(x)), y)
        loss.backward()
        with torch.no_grad():
            for p, m in zip(model.parameters(), momentum):
                m.mul_(0.9).add_(p.grad)
                p -= 0.05 * m
    model.eval()
    with torch.no_grad():
        accuracy = ((model(points) > 0).float() == labels).float().mean().item()
    model.train()
    print(f"epoch {epoch}: accuracy {accuracy:.3f}")
torch.save(model.state_dict(), "model.pt")
