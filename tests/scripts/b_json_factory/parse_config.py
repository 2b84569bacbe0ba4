import json
import logging
from datetime import datetime
from pathlib import Path

from logger import setup_logging


class ConfigParser:
    def __init__(self, config, resume=None, modification=None):
        for keys, value in (modification or {}).items():
            if value is None:
                continue
            node = config
            *path, last = keys.split(';')
            for k in path:
                node = node[k]
            node[last] = value
        self._config = config
        self.resume = resume

        save_dir = Path(config['trainer']['save_dir'])
        run_id = datetime.now().strftime(r'%m%d_%H%M%S')
        self.save_dir = save_dir / 'models' / config['name'] / run_id
        self.log_dir = save_dir / 'log' / config['name'] / run_id
        self.save_dir.mkdir(parents=True, exist_ok=False)
        self.log_dir.mkdir(parents=True, exist_ok=False)
        with (self.save_dir / 'config.json').open('w') as f:
            json.dump(config, f, indent=4)
        setup_logging(self.log_dir)
        self.levels = {0: logging.WARNING, 1: logging.INFO, 2: logging.DEBUG}

    @classmethod
    def from_args(cls, parser, options):
        for flag, (kind, _) in options.items():
            parser.add_argument(flag, default=None, type=kind)
        args = parser.parse_args()
        with open(args.config) as f:
            config = json.load(f)
        return cls(config, args.resume, {place: getattr(args, flag.strip('-')) for flag, (_, place) in options.items()})

    def init_obj(self, name, module, *args):
        kind, kwargs = self[name]['type'], dict(self[name]['args'])
        return getattr(module, kind)(*args, **kwargs)

    def __getitem__(self, name):
        return self._config[name]

    def get_logger(self, name, verbosity=2):
        logger = logging.getLogger(name)
        logger.setLevel(self.levels[verbosity])
        return logger
