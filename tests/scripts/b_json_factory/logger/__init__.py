from .logger import setup_logging
from .visualization import Writer
