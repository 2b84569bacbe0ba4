"""Name this process's own card wherever the script names one.

`cuda:0`, `.cuda(0)`, `torch.cuda.set_device(args.gpu)` and `CUDA_VISIBLE_DEVICES` set in the script send every
process to one card.  `setup_ddp` makes the process's card the current one, so `cuda` without a number is right.

Before:

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

After:

    device = torch.device(f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu")
"""

import ast
import re
from collections.abc import Iterator

from multicard.edits import Edit, delete_statement, remove_argument, remove_element, replace
from multicard.facts import Facts
from multicard.messages import Text
from multicard.plan import Finding
from multicard.source import Module
from multicard.start import NAMES, start
from multicard.tree import held, nodes, walk
from multicard.values import Const, Func, Lib

CODE = "MC102"
TITLE = Text("Use this process's own card", "设备绑定到本进程的卡")

_CARD = r"cuda(:\d+)?"
_CARD_OPTION = r"(?i:gpu|gpus|gpu_ids?|gpu_list|device_ids?|cuda_ids?|cuda_device)"
_OWN = Text(
    "each process has a card of its own; a fixed number would send all of them to one card",
    "每个进程独占一张卡;写死卡号会让所有进程抢同一张卡",
)
_CURRENT = Text(
    "`cuda` without a number is the card that was set for this process at the start",
    "不带编号的 `cuda` 就是启动时为本进程设置的那张卡",
)
_VISIBLE = Text(
    "torchrun's processes must all see the same cards; choose them outside, before the launch",
    "所有进程必须看到同样的卡;请在启动前用环境变量在脚本外选择",
)


_NAMING = frozenset({"cuda", "to", "device", "format"})
_SET_DEVICE = Lib("torch.cuda.set_device")


def find(facts: Facts) -> Iterator[Finding]:
    """Each way of naming a card."""
    place = start(facts)
    for module in facts.modules:
        named = place.names and module is place.module
        for call in nodes(module.tree, ast.Call):
            attr = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if attr in _NAMING or _SET_DEVICE in facts.values(call.func):
                yield from _call(facts, module, call, named=named)
        for constant in nodes(module.tree, ast.Constant):
            if (
                isinstance(constant.value, str)
                and "cuda" in constant.value
                and re.fullmatch(_CARD, constant.value)
            ):
                yield from _constant(facts, module, constant, constant.value, named=named)
        formatted: tuple[ast.JoinedStr | ast.BinOp, ...]
        sums = (node for node in nodes(module.tree, ast.BinOp) if isinstance(node.left, ast.Constant))
        formatted = (*nodes(module.tree, ast.JoinedStr), *sums)
        for text in formatted:
            yield from _formatted(facts, module, text, named=named)
        statements: tuple[ast.Assign | ast.Expr, ...]
        items = (
            node for node in nodes(module.tree, ast.Assign) if isinstance(node.targets[0], ast.Subscript)
        )
        statements = (*items, *nodes(module.tree, ast.Expr))
        for statement in statements:
            if _chooses_cards(statement):
                edit = delete_statement(facts.block(module, statement), module, statement)
                yield Finding(CODE, facts.site(module, statement), _VISIBLE, (edit,))


def _chooses_cards(statement: ast.Assign | ast.Expr) -> bool:
    """Whether an environment variable is set to some cards; no card at all is no choice between them."""
    match statement:
        case (
            ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value="CUDA_VISIBLE_DEVICES"))], value=cards)
            | ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(attr="setdefault" | "putenv"),
                    args=[ast.Constant(value="CUDA_VISIBLE_DEVICES"), cards],
                )
            )
        ):
            return not (isinstance(cards, ast.Constant) and cards.value in {"", "-1"})
        case _:
            return False


def _names(facts: Facts, node: ast.expr) -> set[str]:
    return {value.name for value in facts.values(node) if isinstance(value, Lib)}


def _own(*, named: bool) -> str:
    return "local_rank" if named else "«own_device»().index"


def _call(facts: Facts, module: Module, node: ast.Call, *, named: bool) -> Iterator[Finding]:
    names = _names(facts, node.func)
    yield from _formatted(facts, module, node, named=named)
    if any(isinstance(value, Func) for value in facts.values(node.func)):
        return
    if "torch.cuda.set_device" in names and node.args and not _is_local_rank(node.args[0]):
        text = "local_rank" if named else "«own_device»()"
        yield Finding(CODE, facts.site(module, node), _OWN, (replace(module, node.args[0], text),))
    elif isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and not names:
        device = node.args[0] if node.args else next((k for k in node.keywords if k.arg == "device"), None)
        if device is None or _is_flag(device):
            return
        value = device.value if isinstance(device, ast.keyword) else device
        if isinstance(value, ast.Constant) and value.value is None:
            return
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return
        yield Finding(CODE, facts.site(module, node), _CURRENT, (remove_argument(module, node, device),))
    elif isinstance(node.func, ast.Attribute) and node.func.attr in {"to", "device"} and node.args:
        first = node.args[0]
        if _card_number(first):
            text = _own(named=named) if named else "«own_device»()"
            yield Finding(CODE, facts.site(module, node), _OWN, (replace(module, first, text),))
        elif "torch.device" in names and len(node.args) == 2 and _card_kind(first):
            text = "local_rank" if named else "«own_device»().index"
            yield Finding(CODE, facts.site(module, node), _OWN, (replace(module, node.args[1], text),))


def _card_number(node: ast.expr) -> bool:
    """Whether an argument of `.to(...)` is the number of a card: a literal, or an option named after one."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int) and not isinstance(node.value, bool)
    name = node.value if isinstance(node, ast.Subscript) else node
    word = name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else ""
    return bool(re.fullmatch(_CARD_OPTION, word))


def _is_local_rank(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == NAMES[0]


def _is_flag(node: ast.expr | ast.keyword) -> bool:
    """`.cuda(non_blocking=True)`, `.cuda(True)`: no card is named."""
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def _card_kind(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "cuda"


def _constant(
    facts: Facts, module: Module, node: ast.Constant, text: str, *, named: bool
) -> Iterator[Finding]:
    use = _use(facts, module, node)
    if use == "other" and not _asked_for(facts, module, node, text):
        return
    if _said_before(facts, module, node):
        edit = remove_element(module, facts.parents(module)[node], node)
        yield Finding(CODE, facts.site(module, node), _CURRENT, (edit,))
    elif use == "device" and named and _in_reach(facts, module, node):
        edits: tuple[Edit, ...] = (replace(module, node, 'f"cuda:{local_rank}"'),)
        yield Finding(CODE, facts.site(module, node), _OWN, edits)
    elif ":" in text:
        yield Finding(CODE, facts.site(module, node), _CURRENT, (replace(module, node, '"cuda"'),))


def _asked_for(facts: Facts, module: Module, node: ast.Constant, text: str) -> bool:
    """Whether a name that loses its number is compared with this one."""
    for parent in facts.ancestors(module, node):
        match parent:
            case ast.Compare(left=left, comparators=sides):
                return any(
                    isinstance(value, Const) and value.value == text
                    for side in (left, *sides)
                    if node not in held(side)
                    for value in facts.values(side)
                )
            case ast.List() | ast.Tuple() | ast.Set():
                continue
            case _:
                return False
    return False


def _said_before(facts: Facts, module: Module, node: ast.Constant) -> bool:
    """Whether a choice of an option is a card, as one before it is: without numbers they are one."""
    display = facts.parents(module)[node]
    holder = facts.parents(module).get(display)
    if not isinstance(display, ast.List | ast.Tuple | ast.Set):
        return False
    if not (isinstance(holder, ast.keyword) and holder.arg == "choices"):
        return False
    cards = [item for item in display.elts if isinstance(item, ast.Constant) and _is_card(item.value)]
    return node is not cards[0] and not (isinstance(display, ast.Tuple) and len(cards) == len(display.elts))


def _is_card(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(_CARD, value) is not None


def _in_reach(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether `local_rank` is set when the code runs: not in defaults that run before the start."""
    place = start(facts)
    function = facts.function(module, node)
    statement = facts.statement(module, node)
    if function is not None:
        return node not in {
            inner
            for default in (*function.args.defaults, *function.args.kw_defaults)
            if default
            for inner in walk(default)
        }
    if place.inside_guard:
        return any(
            parent is facts.parents(module).get(place.before) for parent in facts.ancestors(module, statement)
        )
    top = statement
    for parent in facts.ancestors(module, statement):
        if isinstance(parent, ast.stmt):
            top = parent
    return top.lineno >= place.before.lineno and not isinstance(top, ast.ClassDef)


def _use(facts: Facts, module: Module, node: ast.expr) -> str:
    """What a text that names a card is used for: `device`, `name` (an option, a default), or something else."""
    child: ast.AST = node
    for parent in facts.ancestors(module, node):
        match parent:
            case ast.IfExp():
                if child is parent.test:
                    return "other"
            case ast.Call(func=function):
                if child is function:
                    return "other"
                names = _names(facts, function)
                if "torch.device" in names:
                    return "device" if len(parent.args) == 1 and not parent.keywords else "other"
                attr = function.attr if isinstance(function, ast.Attribute) else ""
                if attr in {"to", "cuda", "set_default_device"} or any(
                    name.startswith("torch.") for name in names
                ):
                    amp = any("autocast" in name or "GradScaler" in name for name in names)
                    return "other" if amp else "device"
                own = attr == "" and not any(name.startswith("builtins.") for name in names)
                return "name" if own or attr in {"add_argument", "get", "setdefault"} else "other"
            case ast.keyword(arg="device" | "map_location" | "default" | "dev"):
                inner = facts.parents(module).get(parent)
                if parent.arg in {"device", "map_location"} and isinstance(inner, ast.Call):
                    return (
                        "device" if any(n.startswith("torch.") for n in _names(facts, inner.func)) else "name"
                    )
                return "name"
            case ast.Assign() | ast.AnnAssign() | ast.Dict() | ast.arguments() | ast.Return():
                return "name"
            case ast.Compare() | ast.Subscript() | ast.JoinedStr() | ast.stmt():
                return "other"
            case _:
                pass
        child = parent
    return "other"


def _formatted(
    facts: Facts, module: Module, node: ast.JoinedStr | ast.BinOp | ast.Call, *, named: bool
) -> Iterator[Finding]:
    """`f"cuda:{args.gpu}"`, `"cuda:%d" % gpu`, `"cuda:" + str(gpu)`, `"cuda:{}".format(gpu)`: this process's number."""
    match node:
        case ast.JoinedStr(values=[ast.Constant(value="cuda:"), ast.FormattedValue(value=number)]):
            if _is_local_rank(number):
                return
        case ast.BinOp(left=ast.Constant(value="cuda:"), op=ast.Add()):
            pass
        case ast.BinOp(left=ast.Constant(value="cuda:%d" | "cuda:%s" | "cuda:%i"), op=ast.Mod()):
            pass
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value="cuda:{}" | "cuda:{0}" | "cuda:{:d}"), attr="format")
        ):
            pass
        case _:
            return
    if named and _in_reach(facts, module, node):
        yield Finding(CODE, facts.site(module, node), _OWN, (replace(module, node, 'f"cuda:{local_rank}"'),))
    else:
        yield Finding(CODE, facts.site(module, node), _CURRENT, (replace(module, node, '"cuda"'),))
