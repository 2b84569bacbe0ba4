from .narrow import *
