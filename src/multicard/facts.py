"""What rules may ask of a program: who trains what, in which loop, with which data, and what happens besides.

Facts are read from the events of one run over the program.  Nothing here edits, and nothing here knows a rule.
"""

import ast
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from multicard.interpret import Event, Frame, Interpreter, Loop, Wrap
from multicard.program import Program
from multicard.source import Module, Site
from multicard.tree import nodes, parents
from multicard.values import NOTHING, Const, Data, Obj, Values, contained, data_of, in_source

if TYPE_CHECKING:
    from multicard.dealing import Dealing
    from multicard.plan import Finding, Rule

FrameKey = tuple[ast.AST, tuple[ast.AST, ...]]
"""A loop on one way of getting there: its node and the calls that led to it."""

Statement = ast.stmt
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def key(loop: Loop) -> FrameKey:
    """The identity of a loop frame."""
    return (loop.node, loop.calls)


class Training(NamedTuple):
    """One batch loop that trains."""

    loop: Loop
    epochs: Loop | None
    """The loop that goes round it, once an epoch."""
    loaders: tuple[Obj, ...]
    models: tuple[Obj, ...]
    backward: Event


@dataclass(eq=False, repr=False)
class Facts:
    """All that rules may see."""

    program: Program
    run: Interpreter
    batch: str = "per-card"
    wraps: tuple[Wrap, ...] = ()
    places: tuple[tuple[Obj, Wrap], ...] = ()
    """Trained models and where they are wrapped."""
    unwrapped: tuple[tuple[Obj, str, Wrap | None], ...] = ()
    """Trained models that no wrapper can serve, why, and a statement after which they stand complete."""
    memo: dict[str, object] = field(default_factory=dict)
    """What the program alone decides, found once."""
    answers: dict[str, object] = field(default_factory=dict)
    """What rules say, found once: it may hang on what other rules say."""
    _asked: dict[tuple[tuple[str, ...], bool], tuple[Event, ...]] = field(default_factory=dict, init=False)

    @cached_property
    def dealing(self) -> "Dealing":
        """Which loaders are dealt out, and which loops walk through shares."""
        from multicard.dealing import deal  # it reads facts itself

        return deal(self)

    def settle(self, name: str, seed: object, find: Callable[[], object]) -> object:
        """The answer to a question that may be asked again on the way to it, where `seed` is the answer.

        What others found meanwhile rests on the seed: it is kept only if the seed was right.
        """
        if name not in self.answers:
            before = self.answers
            self.answers = {**before, name: seed}
            found = find()
            if found != seed:
                self.answers = before
            self.answers[name] = found
        return self.answers[name]

    def findings(self, rule: "Rule") -> "tuple[Finding, ...]":
        """What a rule finds, once for as long as the answers hold on which it rests."""
        found = self.answers.get(rule.CODE)
        if found is None:
            found = tuple(rule.find(self))
            self.answers[rule.CODE] = found
        assert isinstance(found, tuple)
        return found

    def dealt(self, loader: Obj) -> bool:
        """Whether a loader gives each rank a share."""
        if loader in self.train_loaders:
            return loader not in self.dealing.unclear
        return loader in self.dealing.dealt

    def understood(self, loop: ast.AST) -> bool:
        """Whether a loop walks through shares that are put together after it."""
        return self.dealing.understood(loop)

    # --- events ----------------------------------------------------------------------------------------------

    def events(self, *kinds: str, dead: bool = True) -> tuple[Event, ...]:
        """The events of these kinds, in the order in which they happen."""
        found = self._asked.get((kinds, dead))
        if found is None:
            some = [
                event for kind in kinds for event in self._by_kind.get(kind, ()) if dead or not event.dead
            ]
            found = self._asked[kinds, dead] = tuple(sorted(some, key=attrgetter("order")))
        return found

    @cached_property
    def _by_kind(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = {}
        for event in self.run.events:
            found.setdefault(event.kind, []).append(event)
        return found

    @cached_property
    def by_node(self) -> dict[ast.AST, list[Event]]:
        """Events by the node where they happen."""
        found: dict[ast.AST, list[Event]] = {}
        for event in self.run.events:
            found.setdefault(event.node, []).append(event)
        return found

    def values(self, node: ast.AST) -> Values:
        """Everything that an expression was seen to be."""
        return self.run.seen.get(node, NOTHING)

    # --- who trains ------------------------------------------------------------------------------------------

    @cached_property
    def optimized(self) -> frozenset[Obj]:
        """Models (and submodules) whose parameters some optimizer holds."""
        found: set[Obj] = set()
        for event in self.events("construct", "optimizer", "step"):
            if isinstance(event.subject, Obj) and event.subject.kind == "optimizer":
                for values in (*event.subject.args.values(), *event.args.values()):
                    found.update(data_of(values).models)
        return frozenset(found | shared_parts(found))

    @cached_property
    def stepped(self) -> bool:
        """Whether any optimizer makes a step that was seen."""
        return any(True for _ in self.events("step", dead=False))

    def trainable(self, model: Obj) -> bool:
        """Whether an optimizer holds the model, a part of it, or what it is a part of."""
        if not self.optimized and not self.stepped:
            return not self._moves_inputs or self._moved_by_hand(model)
        return any(other is model or other.root is model or model.root is other for other in self.optimized)

    @cached_property
    def _moves_inputs(self) -> bool:
        """Whether gradients of samples are used, as an attack on a model does that trains nothing."""
        return any(
            data.loaders and not data.models for values in self._gradients for data in (data_of(values),)
        )

    def _moved_by_hand(self, model: Obj) -> bool:
        """Whether gradients of a model's parameters are used, or its parameters asked for."""
        return any(
            model.root in {known.root for known in data_of(values).models} for values in self._gradients
        ) or any(
            event.name in {"parameters", "named_parameters"}
            and isinstance(event.subject, Obj)
            and model.root in {event.subject.root, getattr(event.subject.inner, "root", None)}
            for event in self.events("method", dead=False)
        )

    @cached_property
    def _gradients(self) -> tuple[Values, ...]:
        """Everything of which a gradient is read."""
        return tuple(
            self.values(node.value)
            for module in self.modules
            for node in nodes(module.tree, ast.Attribute)
            if node.attr == "grad"
        )

    @cached_property
    def backwards(self) -> tuple[Event, ...]:
        """Backward passes whose gradients an optimizer uses, with the models that they train."""
        stepping = {key(loop) for event in self.events("step", dead=False) for loop in event.loops}
        found = []
        for event in self.events("backward", dead=False):
            subject = event.subject
            if not isinstance(subject, Data):
                continue
            models = [model for model in subject.models if self.trainable(model)]
            near = not event.loops or any(key(loop) in stepping for loop in event.loops) or not self.stepped
            if models and near:
                found.append(event)
        return tuple(found)

    @cached_property
    def dropped(self) -> frozenset[Event]:
        """Backward passes for the input alone, as an attack makes them: no step uses the gradients of models."""
        asked = {event for event in self.backwards if self._asks_for_the_inputs(event)}
        if not asked:
            return frozenset()
        later = self.events("backward", "step", "unscale", "clip", "optimizer", "method", dead=False)
        return frozenset(event for event in asked if self._cleared(event, later, asked))

    def _asks_for_the_inputs(self, backward: Event) -> bool:
        """Whether the gradient of samples, and no model's, is read in the function that goes backward."""
        module, scope = backward.module, self.scope(backward.module, backward.node)
        read = [
            data_of(self.values(node.value))
            for node in nodes(scope, ast.Attribute)
            if node.attr == "grad" and isinstance(node.ctx, ast.Load) and self.scope(module, node) is scope
        ]
        return bool(read) and all(data.loaders and not data.models for data in read)

    def _cleared(self, backward: Event, later: tuple[Event, ...], asked: set[Event]) -> bool:
        """Whether all gradients of models are cleared in the same turn before anybody may use them."""
        data = backward.subject if isinstance(backward.subject, Data) else Data()
        models = {model.root for model in data.models if self.trainable(model)}
        turn = {key(loop) for loop in backward.loops}
        for event in later:
            if event.order <= backward.order or event in asked:
                continue
            if event.name == "zero_grad" and isinstance(event.subject, Obj):
                held = data_of(frozenset().union(*event.subject.args.values())).models
                whole = {event.subject.root, getattr(event.subject.inner, "root", None)}
                models -= {model.root for model in held} if event.subject.kind == "optimizer" else whole
                if not {key(loop) for loop in event.loops} <= turn or self._under_a_condition(event):
                    return False
                if not models:
                    return True
            elif event.kind != "method" or event.name in {"parameters", "named_parameters"}:
                return False
        return False

    def _under_a_condition(self, event: Event) -> bool:
        for outer in self.ancestors(event.module, event.node):
            if isinstance(outer, ast.For | ast.While | FunctionNode):
                return False
            if isinstance(outer, ast.If | ast.IfExp | ast.Try):
                return True
        return False

    @cached_property
    def trained(self) -> tuple[Obj, ...]:
        """The models that are called at top level and trained, in the order of their first backward pass."""
        found: dict[Obj, None] = {}
        for event in self.backwards:
            if isinstance(event.subject, Data):
                models = [model for model in event.subject.models if self.trainable(model)]
                for model in sorted(models, key=in_source):
                    if model.root is model or model.root not in event.subject.models:
                        found[model] = None
        return tuple(found)

    @cached_property
    def trainings(self) -> tuple[Training, ...]:
        """The batch loops that train, one for each way of getting there."""
        found: dict[FrameKey, Training] = {}
        for event in self.backwards:
            index = self._batch_loop(event)
            if index is None:
                continue
            loop = event.loops[index]
            data = event.subject if isinstance(event.subject, Data) else Data()
            models = tuple(model for model in self.trained if model in data.models)
            loaders = tuple(dict.fromkeys([*loop.loaders, *sorted(data.loaders, key=in_source)]))
            known = found.get(key(loop))
            if known is not None:
                models = tuple(dict.fromkeys([*known.models, *models]))
                loaders = tuple(dict.fromkeys([*known.loaders, *loaders]))
            epochs = self._epoch_loop(event.loops, index)
            found[key(loop)] = Training(loop, epochs, loaders, models, known.backward if known else event)
        return tuple(found.values())

    def _batch_loop(self, event: Event) -> int | None:
        for index in range(len(event.loops) - 1, -1, -1):
            if event.loops[index].loaders:
                return index
        drawn = {key(loop) for draw in self.events("next") for loop in draw.loops[-1:]}
        for index in range(len(event.loops) - 1, -1, -1):
            if key(event.loops[index]) in drawn:
                return index
        for index in range(len(event.loops) - 1, -1, -1):
            if not isinstance(event.loops[index].node, ast.comprehension):
                return index
        return None

    @staticmethod
    def _epoch_loop(loops: tuple[Loop, ...], index: int) -> Loop | None:
        for loop in reversed(loops[:index]):
            if isinstance(loop.node, ast.For | ast.While) and not _over_words(loop):
                return loop
        return None

    @cached_property
    def training_frames(self) -> frozenset[FrameKey]:
        """Loop frames that train."""
        return frozenset(key(training.loop) for training in self.trainings)

    @cached_property
    def training_nodes(self) -> frozenset[ast.AST]:
        """Loop nodes that train on some way of getting there."""
        return frozenset(training.loop.node for training in self.trainings)

    @cached_property
    def epoch_nodes(self) -> frozenset[ast.AST]:
        """Loops that go round a batch loop that trains, at any distance."""
        found: set[ast.AST] = set()
        for event in self.backwards:
            index = self._batch_loop(event)
            if index is not None:
                found.update(loop.node for loop in event.loops[:index])
        return frozenset(found)

    def trains(self, event: Event) -> bool:
        """Whether an event happens in a batch loop that trains, and not in an evaluation inside it."""
        if event.dead:
            return False
        for loop in reversed(event.loops):
            if key(loop) in self.training_frames:
                return event.grad or event.kind != "forward"
            if loop.loaders:
                return False
        return False

    @cached_property
    def train_loaders(self) -> frozenset[Obj]:
        """Loaders whose batches are trained on."""
        return frozenset(loader for training in self.trainings for loader in training.loaders)

    @cached_property
    def loaders(self) -> tuple[Obj, ...]:
        """Every loader that was made, in order."""
        return tuple(
            dict.fromkeys(
                event.subject
                for event in self.events("construct")
                if isinstance(event.subject, Obj) and event.subject.kind == "loader"
            )
        )

    # --- the tree --------------------------------------------------------------------------------------------

    def parents(self, module: Module) -> dict[ast.AST, ast.AST]:
        """The parent of every node of a module."""
        return parents(module.tree)

    def ancestors(self, module: Module, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes round a node, innermost first."""
        parents = self.parents(module)
        here = parents.get(node)
        while here is not None:
            yield here
            here = parents.get(here)

    def statement(self, module: Module, node: ast.AST) -> ast.stmt:
        """The statement that a node belongs to (itself, if it is one)."""
        if isinstance(node, ast.stmt):
            return node
        return next(item for item in self.ancestors(module, node) if isinstance(item, ast.stmt))

    def block(self, module: Module, statement: ast.stmt) -> list[ast.stmt]:
        """The statements among which a statement stands."""
        parent = self.parents(module)[statement]
        for name in ("body", "orelse", "finalbody", "handlers"):
            body = getattr(parent, name, None)
            if isinstance(body, list) and statement in body:
                return body
        msg = "a statement stands in a body"
        raise AssertionError(msg)

    def function(self, module: Module, node: ast.AST) -> FunctionNode | None:
        """The function that a node stands in."""
        for item in self.ancestors(module, node):
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                return item
        return None

    def scope(self, module: Module, node: ast.AST) -> ast.AST:
        """The function, or the module, that a node stands in."""
        return self.function(module, node) or module.tree

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        """The modules, each once, the entry first."""
        return tuple(dict.fromkeys([self.program.entry, *self.program.modules.values()]))

    @cached_property
    def module_of(self) -> dict[ast.AST, Module]:
        """The module of each function and loop node that was followed."""
        return {event.node: event.module for event in self.run.events}

    def site(self, module: Module, node: ast.AST) -> Site:
        """A place for a finding."""
        if isinstance(node, ast.expr | ast.stmt):
            return Site(module, node)
        return Site(module, self.statement(module, node))

    # --- where code runs -------------------------------------------------------------------------------------

    def enclosing_frames(self, event: Event) -> tuple[Frame, ...]:
        """The functions that are running, outermost first."""
        return event.frames

    def names_of(self, module: Module) -> frozenset[str]:
        """Every name that a module binds or uses anywhere, arguments and attributes left out."""
        memo = self.memo.setdefault("names", {})
        assert isinstance(memo, dict)
        found = memo.get(module)
        if found is None:
            names = {name.id for name in nodes(module.tree, ast.Name)}
            names.update(node.name for node in nodes(module.tree, ast.FunctionDef))
            names.update(node.name for node in nodes(module.tree, ast.ClassDef))
            names.update(parameter.arg for parameter in nodes(module.tree, ast.arg))
            names.update(
                alias.asname or alias.name.partition(".")[0] for alias in nodes(module.tree, ast.alias)
            )
            found = frozenset(names)
            memo[module] = found
        assert isinstance(found, frozenset)
        return found

    def bound_names(self, module: Module) -> frozenset[str]:
        """Every name that a module binds anywhere: assigned, imported, defined, a parameter."""
        memo = self.memo.setdefault("bound", {})
        assert isinstance(memo, dict)
        found = memo.get(module)
        if found is None:
            found = frozenset(_bound(module.tree))
            memo[module] = found
        assert isinstance(found, frozenset)
        return found

    def only(self, values: Values, objs: Iterable[Obj]) -> bool:
        """Whether values are some of these objects and nothing else (None aside)."""
        allowed = set(objs)
        rest = [value for value in values if value != Const(None)]
        return bool(rest) and all(value in allowed for value in rest)


def _bound(tree: ast.AST) -> Iterator[str]:
    yield from (name.id for name in nodes(tree, ast.Name) if not isinstance(name.ctx, ast.Load))
    yield from (node.name for node in nodes(tree, ast.FunctionDef))
    yield from (node.name for node in nodes(tree, ast.AsyncFunctionDef))
    yield from (node.name for node in nodes(tree, ast.ClassDef))
    yield from (parameter.arg for parameter in nodes(tree, ast.arg))
    yield from (alias.asname or alias.name.partition(".")[0] for alias in nodes(tree, ast.alias))
    yield from (handler.name for handler in nodes(tree, ast.ExceptHandler) if handler.name)


def _over_words(loop: Loop) -> bool:
    """Whether a loop runs over a few strings: phases, not epochs."""
    lists = [value for value in loop.over if isinstance(value, Obj) and value.kind in {"list", "tuple"}]
    words = [word for value in lists for item in (*(value.items or ()), value.rest) for word in item]
    return bool(words) and all(isinstance(word, Const) and isinstance(word.value, str) for word in words)


def shared_parts(models: Collection[Obj]) -> set[Obj]:
    """The parts of models, however deep, that another module holds as well: their root is not one of these."""
    seen: set[Obj] = set(models)
    waiting = list(seen)
    while waiting:
        model = waiting.pop()
        for values in (*model.attrs.values(), *(model.items or ()), model.rest):
            parts = [part for part in contained(values, "model") if part not in seen]
            seen.update(parts)
            waiting += parts
    known = seen | {model.root for model in models}
    return {model for model in seen if model.root not in known}
