import importlib

from models.base_model import BaseModel


def find_model_using_name(model_name):
    modellib = importlib.import_module("models." + model_name + "_model")
    wanted = model_name.replace('_', '') + 'model'
    for name, cls in modellib.__dict__.items():
        if name.lower() == wanted and issubclass(cls, BaseModel):
            return cls
    raise NotImplementedError("no %s in models/%s_model.py" % (wanted, model_name))


def create_model(opt):
    model = find_model_using_name(opt.model)(opt)
    print("model [%s] was created" % type(model).__name__)
    return model
