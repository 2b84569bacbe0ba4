import torch


def inference(model, loader, metrics, device):
    model.eval()
    for m in metrics.values():
        m.reset()
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = (model(data), target)
            for m in metrics.values():
                m.update(output)
    return {k: m.compute() for k, m in metrics.items()}
