import torch


def mae(output, target):
    with torch.no_grad():
        return torch.mean(torch.abs(output - target)).item()


def within_20_percent(output, target):
    with torch.no_grad():
        assert output.shape[0] == len(target)
        return ((output - target).abs() < 0.2 * target.abs()).float().mean().item()
