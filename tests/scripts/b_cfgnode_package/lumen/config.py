import ast
import json


class CfgNode(dict):
    """small stand-in for yacs"""

    def __getattr__(self, name):
        if name in self:
            return self[name]
        raise AttributeError(name)

    def __setattr__(self, name, value):
        if self.__dict__.get('_frozen'):
            raise AttributeError('config is frozen: %s' % name)
        self[name] = value

    def freeze(self):
        for v in self.values():
            if isinstance(v, CfgNode):
                v.freeze()
        self.__dict__['_frozen'] = True

    def _merge(self, other):
        for k, v in other.items():
            if k not in self:
                raise KeyError('Non-existent config key: %s' % k)
            if isinstance(v, dict):
                self[k]._merge(v)
            else:
                self[k] = v

    def merge_from_file(self, path):
        with open(path) as f:
            self._merge(json.load(f))

    def merge_from_list(self, pairs):
        for key, value in zip(pairs[::2], pairs[1::2]):
            node = self
            *parents, last = key.split('.')
            for p in parents:
                node = node[p]
            try:
                value = ast.literal_eval(value)
            except (ValueError, SyntaxError):
                pass
            node[last] = value


_C = CfgNode()
_C.OUTPUT_DIR = ""
_C.SEED = 12

_C.MODEL = CfgNode()
_C.MODEL.DEVICE = "cuda"
_C.MODEL.NAME = "convnet"
_C.MODEL.WIDTH = 8
_C.MODEL.NUM_CLASSES = 10

_C.DATALOADER = CfgNode()
_C.DATALOADER.NUM_WORKERS = 0
_C.DATALOADER.BALANCED = False

_C.SOLVER = CfgNode()
_C.SOLVER.OPTIMIZER_NAME = "SGD"
_C.SOLVER.MAX_EPOCHS = 50
_C.SOLVER.IMS_PER_BATCH = 16
_C.SOLVER.BASE_LR = 0.001
_C.SOLVER.BIAS_LR_FACTOR = 2
_C.SOLVER.MOMENTUM = 0.9
_C.SOLVER.WEIGHT_DECAY = 0.0005
_C.SOLVER.WEIGHT_DECAY_BIAS = 0
_C.SOLVER.STEPS = (30, 40)
_C.SOLVER.GAMMA = 0.1
_C.SOLVER.WARMUP_ITERS = 500
_C.SOLVER.CHECKPOINT_PERIOD = 2
_C.SOLVER.LOG_PERIOD = 10

_C.TEST = CfgNode()
_C.TEST.IMS_PER_BATCH = 8

cfg = _C
