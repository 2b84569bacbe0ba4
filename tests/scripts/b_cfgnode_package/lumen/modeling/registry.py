MODELS = {}


def register(name):
    def deco(cls):
        MODELS[name] = cls
        return cls
    return deco
