# just enough of torchvision to run on a box without it
from . import datasets
from . import transforms
from . import utils
