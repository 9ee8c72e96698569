"""Small wrong changes of a Python source, one at a time: what a good test must notice.

The kinds are those of the usual tools (mutmut, cosmic-ray, PIT): see ``KINDS``. Left alone are text
(messages, docstrings, names of options), annotations, decorators, imports, asserts (they are for
the type checker), what stands inside a ``raise``, methods that only display (``DISPLAY``), calls
that change the type and not the value (``CONVERSIONS``), and keywords that change nothing where all
goes well (``IDLE``).
"""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

KINDS = {
    "arithmetic": "+ and -, * and /, ** and *, @ and *, & and | change places; x += y gets x = y",
    "sign": "-x, ~x and not x become x",
    "comparison": "< becomes <= and >=, and so on; ==, is and in get their opposites",
    "logic": "and and or change places; a condition that is no comparison is negated",
    "number": "n becomes n + 1; True and False change places",
    "return": "a value becomes None",
    "call": "f(x, …) becomes x, x.f(…) becomes x, a call for its effect is left out",
    "keyword": "a keyword argument is left out",
    "jump": "break and continue change places; raise becomes pass",
}
DISPLAY = {"_repr_html_", "__repr__", "__str__", "extra_repr"}
CONVERSIONS = """float int bool str list dict tuple tolist asarray astype as_tensor double
cpu numpy to contiguous detach"""
#: ``zip(…, strict=True)``; the device, where there is only one.
IDLE = {"strict", "device"}

_ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Div,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
_LOGIC = {ast.And: ast.Or, ast.Or: ast.And}
_COMPARISON = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
#: Fields that hold no behaviour of their own, or one that only speaks.
_SKIPPED = "annotation returns decorator_list type_params exc cause bases"
#: A union of these is no arithmetic, as in ``isinstance(x, Sequence | np.ndarray)``.
_TYPE = re.compile(
    r"None|int|float|str|list|dict|[A-Z]\w+|[\w.]+\.(ndarray|Generator|RandomState)"
)


@dataclass
class Mutant:
    """One change: ``holder.field`` (or its item ``index``) becomes ``new``."""

    where: str
    line: int
    kind: str
    #: With the line that it stands in: names the mutant, also when lines above it come or go.
    what: str
    holder: ast.AST
    field: str
    index: int | None
    new: ast.AST

    def apply(self) -> None:
        """Change the tree that it was made from. It is spoiled then: work on a copy, or in a
        process of its own."""
        if self.index is None:
            setattr(self.holder, self.field, self.new)
        else:
            getattr(self.holder, self.field)[self.index] = self.new


def mutants(source: str) -> tuple[ast.Module, list[Mutant]]:
    """The tree of a source and all its mutants, in the order of the text."""
    tree = ast.parse(source)
    lines = source.splitlines()
    modules = {
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    found = list(_walk(tree, "module", modules))
    seen = Counter()
    for mutant in found:
        mutant.what = f"{lines[mutant.line - 1].strip()} | {mutant.what}"
        seen[mutant.where, mutant.what] += 1
        if seen[mutant.where, mutant.what] > 1:
            mutant.what += f" (no. {seen[mutant.where, mutant.what]})"
    return tree, found


def _walk(node: ast.AST, where: str, modules: set[str]) -> Iterator[Mutant]:
    skipped = _SKIPPED.split()
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        if node.name in DISPLAY:
            return
        where = f"{where}.{node.name}".removeprefix("module.")
    if isinstance(node, ast.ClassDef):
        skipped.append("keywords")
    for field, index, child in _children(node, skipped):
        if _is_silent(child):
            continue
        left_out = isinstance(node, ast.Expr) and isinstance(child, ast.Call)
        if not left_out:  # not as a whole
            for kind, new in _changes(child, modules):
                what = f"{_short(child)} → {_short(new)}"
                yield Mutant(where, child.lineno, kind, what, node, field, index, new)
        yield from _walk(child, where, modules)


def _children(
    node: ast.AST, skipped: list[str]
) -> Iterator[tuple[str, int | None, ast.AST]]:
    """Field, place in the field and node."""
    for field, value in ast.iter_fields(node):
        if field in skipped:
            continue
        if isinstance(value, ast.AST):
            yield field, None, value
        elif isinstance(value, list):
            for index, child in enumerate(value):
                if isinstance(child, ast.AST):
                    yield field, index, child


def _is_silent(node: ast.AST) -> bool:
    """Is this left alone, with all that is in it?"""
    return (
        isinstance(node, ast.Assert | ast.JoinedStr)
        or (isinstance(node, ast.keyword) and node.arg in IDLE)
        or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    )


def _short(node: ast.AST) -> str:
    if isinstance(node, ast.If | ast.While):
        return f"if {ast.unparse(node.test)}"
    if isinstance(node, ast.Raise):
        return "raise"
    text = " ".join(ast.unparse(node).split())
    if len(text) <= 90:
        return text
    return text[:60] + " … " + text[-25:]


def _with(node: Any, **changes: Any) -> Any:
    new = copy.copy(node)
    for name, value in changes.items():
        setattr(new, name, value)
    return new


def _at(node: ast.AST, new: ast.AST) -> ast.AST:
    return ast.copy_location(new, node)


def _changes(node: Any, modules: set[str]) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.BinOp() if type(node.op) in _ARITHMETIC and not _is_type(node):
            yield "arithmetic", _with(node, op=_ARITHMETIC[type(node.op)]())
        case ast.AugAssign():
            if type(node.op) in _ARITHMETIC:
                yield "arithmetic", _with(node, op=_ARITHMETIC[type(node.op)]())
            yield "arithmetic", _at(node, ast.Assign([node.target], node.value))
        case ast.UnaryOp():
            yield "sign", node.operand
        case ast.Compare():
            for i, op in enumerate(node.ops):
                for other in _COMPARISON[type(op)]:
                    ops = [*node.ops[:i], other(), *node.ops[i + 1 :]]
                    yield "comparison", _with(node, ops=ops)
        case ast.BoolOp():
            yield "logic", _with(node, op=_LOGIC[type(node.op)]())
        case ast.If() | ast.IfExp() | ast.While() if not isinstance(
            node.test, ast.Compare | ast.UnaryOp
        ):
            yield "logic", _with(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.Constant(value=bool()):
            yield "number", _at(node, ast.Constant(not node.value))
        case ast.Constant(value=int() | float()):
            yield "number", _at(node, ast.Constant(node.value + 1))
        case ast.Return(value=None | ast.Constant(value=None)):
            return
        case ast.Return():
            yield "return", _with(node, value=ast.Constant(None))
        case ast.Expr(value=ast.Call()):
            yield "call", _at(node, ast.Pass())
        case ast.Raise():
            yield "jump", _at(node, ast.Pass())
        case ast.Break():
            yield "jump", _at(node, ast.Continue())
        case ast.Continue():
            yield "jump", _at(node, ast.Break())
        case ast.Call():
            yield from _call_changes(node, modules)


def _call_changes(node: ast.Call, modules: set[str]) -> Iterator[tuple[str, ast.AST]]:
    for i, keyword in enumerate(node.keywords):
        if keyword.arg is not None and keyword.arg not in IDLE:
            others = node.keywords[:i] + node.keywords[i + 1 :]
            yield "keyword", _with(node, keywords=others)
    name = ast.unparse(node.func)
    if name.rpartition(".")[2] in CONVERSIONS.split():
        return
    # Of what a call or an item gives, nothing is the function of a module.
    of_module = "(" not in name and name.partition(".")[0] in modules
    if isinstance(node.func, ast.Attribute) and not of_module:
        if ast.unparse(node.func.value) != "super()":
            yield "call", node.func.value
    elif node.args and not isinstance(node.args[0], ast.Starred):
        yield "call", node.args[0]


def _is_type(node: ast.BinOp) -> bool:
    return all(_TYPE.fullmatch(side) for side in ast.unparse(node).split(" | "))
