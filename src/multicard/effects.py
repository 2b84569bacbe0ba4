"""What a call leaves behind: a file, a folder, a line on the screen, a picture, a deletion; and what it reads.

Code that runs once on one card runs once on every card after migration, so whoever keeps effects to rank 0 must know
them all, under every name that the libraries give them.  The tables are here and nowhere else.
"""

import ast
from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple

from multicard.facts import Facts
from multicard.source import Module
from multicard.tree import Kind, by_kind, children, kinds, nodes, walk
from multicard.values import Class, Const, Data, Func, Lib, Method, Obj, Unknown

What = Literal[
    "write", "save", "delete", "folder", "open", "command", "show", "draw", "send", "read", "writer"
]

_PATH_OF: dict[What, dict[str, int]] = {
    "write": {
        "numpy.save": 0,
        "numpy.savez": 0,
        "numpy.savez_compressed": 0,
        "numpy.savetxt": 0,
        "cv2.imwrite": 0,
        "imageio.imwrite": 0,
        "imageio.imsave": 0,
        "imageio.mimsave": 0,
        "imageio.mimwrite": 0,
        "imageio.v2.imwrite": 0,
        "imageio.v2.mimsave": 0,
        "imageio.v3.imwrite": 0,
        "matplotlib.pyplot.savefig": 0,
        "matplotlib.pyplot.imsave": 0,
        "matplotlib.image.imsave": 0,
        "torchvision.utils.save_image": 1,
        "torchvision.io.write_png": 1,
        "torchvision.io.write_jpeg": 1,
        "torchvision.io.write_video": 0,
        "torchaudio.save": 0,
        "soundfile.write": 0,
        "scipy.io.savemat": 0,
        "scipy.io.wavfile.write": 0,
        "scipy.sparse.save_npz": 0,
        "skimage.io.imsave": 0,
        "joblib.dump": 1,
        "safetensors.torch.save_file": 1,
        "safetensors.torch.save_model": 1,
        "shutil.copy": 1,
        "shutil.copy2": 1,
        "shutil.copyfile": 1,
        "shutil.copytree": 1,
        "shutil.move": 1,
        "shutil.make_archive": 0,
        "os.rename": 1,
        "os.replace": 1,
        "os.symlink": 1,
        "os.link": 1,
        "urllib.request.urlretrieve": 1,
        "wget.download": 1,
        "gdown.download": 1,
    },
    "save": {"torch.save": 1, "torch.jit.save": 1, "torch.onnx.export": 2},
    "delete": {
        "os.remove": 0,
        "os.unlink": 0,
        "os.rmdir": 0,
        "os.removedirs": 0,
        "shutil.rmtree": 0,
    },
    "folder": {"os.makedirs": 0, "os.mkdir": 0},
    "open": {
        "builtins.open": 0,
        "io.open": 0,
        "codecs.open": 0,
        "gzip.open": 0,
        "bz2.open": 0,
        "lzma.open": 0,
        "wave.open": 0,
    },
    "command": {
        "os.system": 0,
        "os.fsync": -1,  # the file is `os.devnull` on the other ranks, which cannot be flushed to disk
        "os.fdatasync": -1,
        "fcntl.flock": -1,
        "os.popen": 0,
        "subprocess.run": 0,
        "subprocess.call": 0,
        "subprocess.check_call": 0,
        "subprocess.Popen": 0,
    },
    "show": {"matplotlib.pyplot.show": -1, "cv2.imshow": -1, "cv2.waitKey": -1},
    "send": {
        "wandb.log": -1,
        "wandb.save": -1,
        "wandb.watch": -1,
        "wandb.finish": -1,
        "wandb.alert": -1,
        "mlflow.log_metric": -1,
        "mlflow.log_metrics": -1,
        "mlflow.log_param": -1,
        "mlflow.log_params": -1,
        "mlflow.log_artifact": -1,
        "mlflow.log_artifacts": -1,
        "mlflow.log_figure": -1,
        "mlflow.set_experiment": -1,
        "mlflow.set_tag": -1,
        "mlflow.set_tags": -1,
        "mlflow.set_tracking_uri": -1,
        "mlflow.end_run": -1,
        "mlflow.pytorch.log_model": -1,
        "tensorboard_logger.configure": -1,
        "tensorboard_logger.log_value": -1,
    },
    "read": {
        "numpy.load": 0,
        "numpy.loadtxt": 0,
        "numpy.genfromtxt": 0,
        "numpy.fromfile": 0,
        "numpy.memmap": 0,
        "pandas.read_csv": 0,
        "pandas.read_json": 0,
        "pandas.read_pickle": 0,
        "pandas.read_parquet": 0,
        "pandas.read_excel": 0,
        "cv2.imread": 0,
        "PIL.Image.open": 0,
        "matplotlib.pyplot.imread": 0,
        "joblib.load": 0,
        "torch.load": 0,
        "scipy.io.loadmat": 0,
        "os.listdir": 0,
        "glob.glob": 0,
        "torchaudio.load": 0,
        "safetensors.torch.load_file": 0,
        "pycocotools.coco.COCO": 0,
    },
    "writer": {
        "torch.utils.tensorboard.SummaryWriter": -1,
        "tensorboard.SummaryWriter": -1,
        "tensorboardX.SummaryWriter": -1,
        "tensorboard_logger.Logger": -1,
        "visdom.Visdom": -1,
        "wandb.init": -1,
        "neptune.init_run": -1,
        "neptune.init": -1,
        "comet_ml.Experiment": -1,
        "comet_ml.start": -1,
        "aim.Run": -1,
        "clearml.Task.init": -1,
        "swanlab.init": -1,
        "tensorflow.summary.FileWriter": -1,
        "tensorflow.compat.v1.summary.FileWriter": -1,
        "tensorflow.summary.create_file_writer": -1,
        "cv2.VideoWriter": 0,
        "imageio.get_writer": 0,
        "pandas.ExcelWriter": 0,
        "h5py.File": 0,
        "zipfile.ZipFile": 0,
        "tarfile.open": 0,
        "netCDF4.Dataset": 0,
        "rasterio.open": 0,
        "soundfile.SoundFile": 0,
        "tables.open_file": 0,
    },
}
ARCHIVES = frozenset({
    "h5py.File", "netCDF4.Dataset", "rasterio.open", "soundfile.SoundFile", "tables.open_file", "tarfile.open",
    "zipfile.ZipFile",
})  # fmt: skip
"""Writers that may also read: their mode says which."""
_KINDS = {name: (what, path) for what, names in _PATH_OF.items() for name, path in names.items()}
_METHODS: dict[str, tuple[What, int]] = {
    **dict.fromkeys(
        (
            "to_csv", "to_excel", "to_json", "to_pickle", "to_parquet", "to_feather", "to_html", "to_hdf", "to_latex",
            "savefig", "tofile", "write_html", "write_image", "save_pretrained", "save_model", "write_video",
        ),
        ("write", 0),
    ),
    "write_text": ("write", -1),
    "write_bytes": ("write", -1),
    "unlink": ("delete", -1),
    "rmdir": ("delete", -1),
    "touch": ("write", -1),
    "mkdir": ("folder", -1),
    "iterdir": ("read", -1),
    "read_text": ("read", -1),
    "read_bytes": ("read", -1),
    "loadRes": ("read", 0),
}  # fmt: skip
_METHODS_OF_SOME = frozenset({"save", "open", "rename", "replace", "glob"})
_RUNS = ("wandb.init", "neptune.", "comet_ml.")
SCREEN = frozenset({"plot", "scatter", "hist", "bar", "imshow"})


class Effect(NamedTuple):
    """What one call does, and the expression that says where."""

    what: What
    name: str
    """The qualified name of the function, or of the method after its owner."""
    module: Module
    call: ast.Call
    path: ast.expr | None


def names_of(facts: Facts, call: ast.Call) -> frozenset[str]:
    """What a call may call: qualified names; a method after the name of its owner, or after a dot."""
    memo = facts.memo.setdefault("names of calls", {})
    assert isinstance(memo, dict)
    known = memo.get(call)
    if known is None:
        known = memo[call] = _names_of(facts, call)
    assert isinstance(known, frozenset)
    return known


def _names_of(facts: Facts, call: ast.Call) -> frozenset[str]:
    found = set()
    for value in facts.values(call.func):
        match value:
            case Lib(name=name):
                found.add(name)
            case Method(owner=Obj() as owner, name=name):
                found.add(f"{owner.name if owner.kind != 'file' else 'builtins.open'}.{name}")
            case Method(name=name):
                found.add(f".{name}")
            case Func() as function:
                found.add(f"local:{getattr(function.node, 'name', 'lambda')}")
            case Data() | Unknown() if isinstance(call.func, ast.Attribute):
                found.add(f".{call.func.attr}")
            case Obj(cls=None, kind="lib", name=name):
                found.add(name)
            case Class():
                bases = (base.name for base in value.mro() if isinstance(base, Lib))
                found.add(next((name for name in bases if name in _PATH_OF["writer"]), "?"))
            case _:
                found.add("?")
    if not found and isinstance(call.func, ast.Attribute):
        found.add(f".{call.func.attr}")
    return frozenset(found)


def calls_named(facts: Facts, module: Module, wanted: Callable[[str], bool]) -> tuple[ast.Call, ...]:
    """The calls of a module that may call something by a wanted name, in the order of the source.

    A module has many calls and few names, so a rule asks the names which calls it has to look at.
    """
    memo = facts.memo.setdefault("calls by name", {})
    assert isinstance(memo, dict)
    index = memo.get(module)
    if index is None:
        index = memo[module] = {}
        for position, call in enumerate(calls_in(facts, module)):
            for name in names_of(facts, call):
                index.setdefault(name, {})[position] = call
    found: dict[int, ast.Call] = {}
    for name, calls in index.items():
        if wanted(name):
            found.update(calls)
    return tuple(found[position] for position in sorted(found))


def effect_of(facts: Facts, module: Module, call: ast.Call) -> Effect | None:
    """What a call leaves behind, if anything is known of it."""
    names = names_of(facts, call)
    if any(name.startswith("local:") for name in names):
        return None
    found = _effect(facts, module, call, names)
    if found is not None and found.what != "read" and not placed(facts, module, call):
        return None
    return None if found is not None and found.path is not None and _in_memory(facts, found.path) else found


def _may_leave(name: str) -> bool:
    """Whether a call by this name may have an effect: what `_effect` looks at."""
    owner, _, tail = name.rpartition(".")
    return (
        name in _KINDS
        or tail in _METHODS
        or tail in _METHODS_OF_SOME
        or name.startswith(("matplotlib.pyplot.", *_RUNS))
        or owner == "mlflow"
    )


def _in_memory(facts: Facts, path: ast.expr) -> bool:
    """Whether what looks like a file is a buffer, which every rank fills for itself."""
    return any(
        isinstance(value, Obj) and value.name in {"io.BytesIO", "io.StringIO"} for value in facts.values(path)
    )


def _effect(facts: Facts, module: Module, call: ast.Call, names: frozenset[str]) -> Effect | None:
    for name in sorted(names):
        if name in _KINDS:
            what, position = _KINDS[name]
            return Effect(what, name, module, call, _argument(call, position))
        if name.startswith("matplotlib.pyplot."):
            tail = name.removeprefix("matplotlib.pyplot.").partition(".")[2]
            if not tail:
                return Effect("draw", name, module, call, None)
        method = _method(facts, name, call)
        if method is not None:
            what, position = method
            path = _argument(call, position) if position >= 0 else _owner(call)
            if what == "write" and position >= 0 and path is None and not call.keywords:
                return None  # `df.to_csv()` gives the text back
            return Effect(what, name, module, call, path)
    return None


def _method(facts: Facts, name: str, call: ast.Call) -> tuple[What, int] | None:
    owner, _, tail = name.rpartition(".")
    if not isinstance(call.func, ast.Attribute) or owner.startswith(("os", "shutil", "torch.", "sys")):
        return None
    if tail in _METHODS:
        return _METHODS[tail]
    values = facts.values(call.func.value)
    plain = all(
        isinstance(value, Data) or (isinstance(value, Obj) and value.kind == "lib") for value in values
    )
    if tail == "save" and plain and (call.args or call.keywords) and "wandb" not in owner:
        return "write", 0
    if tail == "open" and (owner.startswith("pathlib") or _literal_mode(call, 0)):
        return "open", -1
    if tail in {"rename", "replace"} and owner.startswith("pathlib"):
        return "write", 0
    if tail == "glob" and owner.startswith("pathlib"):
        return "read", -1
    if owner.startswith(_RUNS) or owner == "mlflow":
        return "send", -1
    return None


def _literal_mode(call: ast.Call, position: int) -> bool:
    mode = _argument(call, position)
    return (
        isinstance(mode, ast.Constant) and isinstance(mode.value, str) and set(mode.value) <= set("rwaxbt+")
    )


def _argument(call: ast.Call, position: int) -> ast.expr | None:
    if 0 <= position < len(call.args) and not any(
        isinstance(a, ast.Starred) for a in call.args[: position + 1]
    ):
        return call.args[position]
    if position < 0:
        return None
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    for name in (
        "file",
        "path",
        "filename",
        "f",
        "fname",
        "fp",
        "dst",
        "name",
        "path_or_buf",
        "excel_writer",
    ):
        if name in named:
            return named[name]
    return None


def _owner(call: ast.Call) -> ast.expr | None:
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def mode_of(facts: Facts, effect: Effect) -> tuple[ast.expr | None, str | None]:
    """The mode that a file is opened in: its expression, and its text where it is known."""
    position = 0 if effect.path is _owner(effect.call) else 1
    given = next((keyword.value for keyword in effect.call.keywords if keyword.arg == "mode"), None)
    if given is None and position < len(effect.call.args):
        given = effect.call.args[position]
    if given is None:
        return None, "r"
    if isinstance(given, ast.Constant):
        return given, given.value if isinstance(given.value, str) else None
    known = {value.value if isinstance(value, Const) else None for value in facts.values(given)}
    only = known.pop() if len(known) == 1 else None
    return given, only if isinstance(only, str) else None


def writes_to(mode: str) -> bool:
    """Whether a mode of `open` writes."""
    return bool(set(mode) & set("wax+"))


def is_known(name: str) -> bool:
    """Whether the tables tell what a library's function leaves behind."""
    return name in _KINDS or name.startswith(("matplotlib.", "mlflow.", *_RUNS))


def all_effects(facts: Facts) -> tuple[Effect, ...]:
    """The effects of every call in the program that can run, module by module in the order of the source."""
    found = facts.memo.get("effects")
    if found is None:
        found = tuple(
            effect
            for module in facts.modules
            for call in calls_named(facts, module, _may_leave)
            if (effect := effect_of(facts, module, call)) is not None
        )
        facts.memo["effects"] = found
    assert isinstance(found, tuple)
    return found


def placed(facts: Facts, module: Module, node: ast.expr) -> bool:
    """Whether a node stands where the tree says: inside f-strings older Pythons count wrong."""
    if not any(isinstance(outer, ast.JoinedStr) for outer in facts.ancestors(module, node)):
        return True
    try:
        return ast.dump(ast.parse(f"({module.text(node)})", mode="eval").body) == ast.dump(node)
    except (SyntaxError, ValueError):
        return False


def calls_in(facts: Facts, module: Module) -> tuple[ast.Call, ...]:
    """The calls of a module in the order of the source, without a local module's own `__main__` part."""
    memo = facts.memo.setdefault("calls", {})
    assert isinstance(memo, dict)
    found = memo.get(module)
    if found is None:
        calls = running(facts, module, ast.Call)
        found = tuple(sorted(calls, key=attrgetter("lineno", "col_offset")))
        memo[module] = found
    assert isinstance(found, tuple)
    return found


def running(facts: Facts, module: Module, kind: type[Kind]) -> tuple[Kind, ...]:
    """The nodes of one kind among those that this program may run."""
    some: tuple[Kind, ...] = running_kinds(facts, module).get(kind, ())  # type: ignore[assignment]
    return some


def running_kinds(facts: Facts, module: Module) -> dict[type[ast.AST], tuple[ast.AST, ...]]:
    """Those nodes under their classes."""
    memo = facts.memo.setdefault("running by kind", {})
    assert isinstance(memo, dict)
    index = memo.get(module)
    if index is None:
        found = running_nodes(facts, module)
        index = memo[module] = kinds(module.tree) if found is walk(module.tree) else by_kind(found)
    assert isinstance(index, dict)
    return index


def running_paths(facts: Facts, module: Module) -> tuple[ast.Name | ast.Attribute, ...]:
    """The names and attributes among those nodes."""
    return (*running(facts, module, ast.Name), *running(facts, module, ast.Attribute))


def named(facts: Facts, module: Module, word: str) -> Sequence[ast.Name | ast.Attribute]:
    """The names and attributes among those nodes that are this word."""
    return words(facts, module).get(word, ())


def words(facts: Facts, module: Module) -> dict[str, list[ast.Name | ast.Attribute]]:
    """The names and attributes among those nodes, by their word."""
    memo = facts.memo.setdefault("paths by word", {})
    assert isinstance(memo, dict)
    index = memo.get(module)
    if index is None:
        index = memo[module] = defaultdict(list)
        for name in running(facts, module, ast.Name):
            index[name.id].append(name)
        for attribute in running(facts, module, ast.Attribute):
            index[attribute.attr].append(attribute)
    assert isinstance(index, dict)
    return index


def running_nodes(facts: Facts, module: Module) -> tuple[ast.AST, ...]:
    """Every node of a module that this program may run."""
    memo = facts.memo.setdefault("running", {})
    assert isinstance(memo, dict)
    found = memo.get(module)
    if found is None:
        if module is facts.program.entry or not any(map(_is_main, nodes(module.tree, ast.If))):
            found = walk(module.tree)
        else:
            queue: list[ast.AST] = [module.tree]
            for node in queue:
                queue += [child for child in children(node) if not _is_main(child)]
            found = tuple(queue)
        memo[module] = found
    assert isinstance(found, tuple)
    return found


def _is_main(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Compare)
        and isinstance(node.test.left, ast.Name)
        and node.test.left.id == "__name__"
    )
