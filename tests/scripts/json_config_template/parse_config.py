import os
import logging
from pathlib import Path
from functools import reduce, partial
from operator import getitem
from datetime import datetime
from logger import setup_logging
from utils import read_json, write_json


class ConfigParser:
    def __init__(self, config, resume=None, changes=None, run_id=None):
        for path, value in (changes or {}).items():
            if value is not None:
                *keys, last = path.split(';')
                reduce(getitem, keys, config)[last] = value
        self.config = config
        self.resume = resume

        save_dir = Path(config['trainer']['save_dir'])
        run_id = run_id or datetime.now().strftime(r'%m%d_%H%M%S')
        self.save_dir = save_dir / 'models' / config['name'] / run_id
        self.log_dir = save_dir / 'log' / config['name'] / run_id
        # a run must not write over another
        self.save_dir.mkdir(parents=True, exist_ok=run_id == '')
        self.log_dir.mkdir(parents=True, exist_ok=run_id == '')
        write_json(config, self.save_dir / 'config.json')

        setup_logging(self.log_dir)
        self.log_levels = {0: logging.WARNING, 1: logging.INFO, 2: logging.DEBUG}

    @classmethod
    def from_args(cls, args, overrides=()):
        for o in overrides:
            args.add_argument(*o.flags, default=None, type=o.type)
        args = args.parse_args()
        if args.device is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = args.device
        if args.resume is not None:
            resume = Path(args.resume)
            cfg_fname = resume.parent / 'config.json'
        else:
            assert args.config is not None, "need a config, for example: -c config.json"
            resume = None
            cfg_fname = Path(args.config)
        config = read_json(cfg_fname)
        return cls(config, resume, {o.target: getattr(args, _dest(o.flags)) for o in overrides})

    def init_obj(self, name, module, *args, **kwargs):
        """config.init_obj('name', module, a, b=1)  is  module.<type>(a, b=1, **<args of the config>)"""
        module_args = dict(self[name]['args'])
        assert all(k not in module_args for k in kwargs), 'the config is not to be overwritten'
        module_args.update(kwargs)
        return getattr(module, self[name]['type'])(*args, **module_args)

    def init_ftn(self, name, module, *args, **kwargs):
        return partial(getattr(module, self[name]['type']), *args, **dict(self[name]['args'], **kwargs))

    def __getitem__(self, name):
        return self.config[name]

    def get_logger(self, name, verbosity=2):
        logger = logging.getLogger(name)
        logger.setLevel(self.log_levels[verbosity])
        return logger


def _dest(flags):
    return next(f for f in flags if f.startswith('--')).replace('--', '')
