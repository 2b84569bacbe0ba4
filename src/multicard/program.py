"""The entry script and every local module that it imports, parsed once.

Half of real training code lies outside the entry file: the trainer class, the engine, the model.  A rewriter of
single files cannot see what its loader or its model is.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from multicard.errors import SourceError
from multicard.source import Module, read
from multicard.tree import forget, nodes, walk

RUNTIME = "ddp_runtime"
"""The helpers beside a migrated script: a library, as `multicard.runtime` is."""


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """What was read.  `modules` are by dotted name; the entry is `__main__`."""

    entry: Module
    modules: dict[str, Module]
    roots: tuple[Path, ...]
    skipped: tuple[SourceError, ...] = ()
    """Local modules that are imported but cannot be parsed."""
    above: Path | None = None
    """The folder over the script's where its own package was found: Python finds it there only if it is told."""

    def find(self, name: str) -> Module | None:
        """The local module of that dotted name, if it was read."""
        return self.modules.get(name)


@dataclass(eq=False, repr=False)
class _Reader:
    roots: list[Path]
    modules: dict[str, Module] = field(default_factory=dict)
    by_path: dict[Path, Module] = field(default_factory=dict)
    skipped: list[SourceError] = field(default_factory=list)
    above: Path | None = None
    absent: dict[str, int] = field(default_factory=dict)
    """Names that are not found under so many roots."""
    held: dict[tuple[Path, str], bool] = field(default_factory=dict)
    """Whether folders hold names: most are a library's, and stand in none."""

    def locate(self, name: str) -> Path | None:
        parts = name.split(".")
        for root in self.roots:
            path = _module_in(root, parts) if self.holds(root, parts[0]) else None
            if path is not None:
                return path
        return self.locate_above(parts)

    def holds(self, root: Path, name: str) -> bool:
        """Whether a folder has a module, or a folder, of this name."""
        known = self.held.get((root, name))
        if known is None:
            known = self.held[root, name] = (root / name).exists() or (root / f"{name}.py").exists()
        return known

    def locate_above(self, parts: list[str]) -> Path | None:
        """A module of the package that the script itself stands in, or of the project that it is installed from.

        A script that adds to `sys.path` what is not written out there means a folder above, as a rule.
        """
        home = self.roots[0]
        told = any(b"sys.path" in module.data for module in self.modules.values())
        for root in [*home.parents][:_ABOVE]:
            if not self.holds(root, parts[0]):
                continue
            package = root / parts[0]
            own = package == home or package in home.parents
            if package.is_dir() and (own or told or any((root / mark).exists() for mark in _PROJECT)):
                path = _module_in(root, parts)
                if path is not None:
                    self.roots.append(root)
                    self.above = self.above or root
                    return path
        return None

    def load(self, name: str) -> None:
        """Read a module and its packages; an unknown name is a library's."""
        if name in self.modules or not name or name == RUNTIME:
            return
        if self.absent.get(name) == len(self.roots):
            return
        parent = name.rpartition(".")[0]
        if parent:
            self.load(parent)
        path = self.locate(name)
        if path is None:
            self.absent[name] = len(self.roots)
            return
        known = self.by_path.get(path.resolve())
        if known is not None:
            self.modules[name] = known
            return
        try:
            module = read(path, name)
        except SourceError as error:
            self.skipped.append(error)
            return
        self.modules[name] = module
        self.by_path[path.resolve()] = module
        self.follow(module)

    def follow(self, module: Module) -> None:
        self.roots += [root for root in _appended_roots(module) if root not in self.roots]
        for name in _imports(module):
            self.load(name)


def _module_in(root: Path, parts: list[str]) -> Path | None:
    base = root.joinpath(*parts)
    for path in (base / "__init__.py", base.with_name(base.name + ".py")):
        if path.is_file():
            return path
    return None


_ABOVE = 2
"""So many folders above the script's are looked into, and copied along with it."""
_PROJECT = ("setup.py", "pyproject.toml", "setup.cfg", ".git")
"""What stands in the folder of a project, whose packages are installed where they are."""


def _imports(module: Module) -> Iterator[str]:
    """Dotted names that a module may import, also `from package import module`."""
    for node in nodes(module.tree, ast.Import):
        yield from (alias.name for alias in node.names)
    for start in nodes(module.tree, ast.ImportFrom):
        base = absolute(module, start)
        yield base
        yield from (
            f"{base}.{alias.name}" if base else alias.name for alias in start.names if alias.name != "*"
        )
    for call in nodes(module.tree, ast.Call):
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in {"import_module", "__import__"} and call.args:
            yield from _named_by(module, call.args[0])


def _named_by(module: Module, node: ast.expr) -> Iterator[str]:
    """The modules that the argument of `import_module` may name: those in the package that its literal part names."""
    if not any(isinstance(part, ast.Constant) for part in walk(node)):
        texts = {part.value for part in walk(module.tree) if isinstance(part, ast.Constant)}
        yield from sorted(text for text in texts if isinstance(text, str) and text.isidentifier())
        return
    words = [
        part.value for part in walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    if isinstance(node, ast.Constant):
        yield from words
        return
    for word in words:
        package, dot, _ = word.partition("{")[0].partition("%")[0].rpartition(".")
        if dot and package.replace(".", "").isidentifier():
            folder = module.path.parent
            for base in (folder, folder.parent):
                for path in sorted(base.joinpath(*package.split(".")).glob("*.py")):
                    if path.stem != "__init__":
                        yield f"{package}.{path.stem}"


def absolute(module: Module, node: ast.ImportFrom) -> str:
    """The dotted name that a `from` import starts at, relative ones resolved."""
    if not node.level:
        return node.module or ""
    package = module.name.split(".")
    if module.path.name != "__init__.py":
        package = package[:-1]
    package = package[: len(package) - (node.level - 1)] if node.level > 1 else package
    return ".".join([*package, *([node.module] if node.module else [])])


def _appended_roots(module: Module) -> Iterator[Path]:
    """Folders that `sys.path.append(...)` and `.insert(0, ...)` name literally."""
    for node in nodes(module.tree, ast.Call):
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in {"append", "insert", "extend"}
            and isinstance(node.func.value, ast.Attribute)
            and node.func.value.attr == "path"
            and node.args
        ):
            for part in walk(node.args[-1]):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    for base in (module.path.parent, module.path.parent.parent, Path.cwd()):
                        folder = (base / part.value).resolve()
                        if folder.is_dir():
                            yield folder
            levels = sum(
                isinstance(part, ast.Attribute) and part.attr in {"dirname", "parent"}
                for part in walk(node.args[-1])
            )
            folder = module.path.resolve()
            for _ in range(levels):
                folder = folder.parent
                yield folder


def read_program(path: Path) -> Program:
    """Read the entry and follow its local imports; raises `SourceError` for the entry alone."""
    forget()
    entry = read(path, "__main__")
    reader = _Reader([path.resolve().parent])
    reader.by_path[path.resolve()] = entry
    reader.modules["__main__"] = entry
    reader.follow(entry)
    return Program(entry, reader.modules, tuple(reader.roots), tuple(reader.skipped), reader.above)
