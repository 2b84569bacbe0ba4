from .vgg import *
from .preact import *
