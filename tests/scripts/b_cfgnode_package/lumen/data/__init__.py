from .build import make_data_loader
