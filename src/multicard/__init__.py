"""One card to many: rewrites single-card PyTorch training scripts into DistributedDataParallel ones."""

__version__ = "0.1.0"
