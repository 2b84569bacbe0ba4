from .build import make_optimizer
from .lr_scheduler import make_lr_scheduler
