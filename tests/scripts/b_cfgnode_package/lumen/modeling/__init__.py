from .registry import MODELS
from . import convnet  # noqa, registers


def build_model(cfg):
    return MODELS[cfg.MODEL.NAME](cfg)
