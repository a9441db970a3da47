"""One-token faults: what may be changed in a piece of Python, as replacements of its text, found in its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

# (operator's name, what is replaced, by what)
Edit = tuple[str, ast.expr, str]


class Source:
    """A file's text, with the place in it of each node of its tree."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """From where to where the node stands, in characters from the beginning."""
        assert node.end_lineno is not None and node.end_col_offset is not None, "nodes that were parsed have an end"
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def segment(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def _offset(self, lineno: int, column: int) -> int:
        """Columns of a tree count bytes."""
        line = self._lines[lineno - 1]
        return self._starts[lineno - 1] + (column if line.isascii() else len(line.encode()[:column].decode()))


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an expression stands: its file, its function's variables, each with its first line, and ``attributes``.

    Those are what the class (or the function) reads of things: what it reads (``self``) -> names of attributes.
    """

    source: Source
    variables: Mapping[str, int]
    attributes: Mapping[str, Sequence[str]]

    def text(self, node: ast.expr) -> str:
        return self.source.segment(node)


def edits(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    """Every one-token fault that can be put into ``node`` itself, not into what lies below it."""
    for operator in OPERATORS:
        yield from operator(node, scope)


def _comparison(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    """``<`` to ``<=`` and the like: off by one at a boundary."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
        sign = _COMPARED[type(node.ops[0])]
        yield "comparison", node, f"{scope.text(node.left)} {sign} {scope.text(node.comparators[0])}"


_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
}


def _arithmetic(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    """``+`` to ``-`` and back."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        sign = "-" if isinstance(node.op, ast.Add) else "+"
        yield "sign", node, f"({scope.text(node.left)}) {sign} ({scope.text(node.right)})"


def _dropped_operand(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    """One side of a sum, a product or a conjunction forgotten: ``a + b`` to ``a``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
        yield "dropped operand", node, f"({scope.text(node.left)})"
        if not isinstance(node.op, ast.Sub):
            yield "dropped operand", node, f"({scope.text(node.right)})"
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        for side in (node.left, node.right):
            yield "dropped condition", node, f"({scope.text(side)})"
    if isinstance(node, ast.BoolOp) and len(node.values) == 2:
        for side in node.values:
            yield "dropped condition", node, f"({scope.text(side)})"


def _index(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    """An index or a slice's bound, one too many or too few."""
    if not isinstance(node, ast.Subscript):
        return
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for part in parts:
        bounds = [part.lower, part.upper] if isinstance(part, ast.Slice) else [part]
        for bound in bounds:
            if bound is None or (isinstance(bound, ast.Constant) and not isinstance(bound.value, int)):
                continue
            for delta in ("+ 1", "- 1"):
                yield "index off by one", bound, f"({scope.text(bound)}) {delta}"


def _length(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    """What is called a length, a count or a size, one too many or too few."""
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
        name = node.id if isinstance(node, ast.Name) else node.attr
    elif isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    else:
        return
    if _words(name) & _LENGTHS:
        for delta in ("+ 1", "- 1"):
            yield "length off by one", node, f"({scope.text(node)} {delta})"


_LENGTHS = frozenset(
    {"len", "lens", "length", "lengths", "size", "numel", "num", "bs", "end", "start", "offset", "count"}
)


def _mask(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    """A mask left out of a load or a store, or turned round."""
    for keyword in node.keywords if isinstance(node, ast.Call) else ():
        if keyword.arg == "mask" and not isinstance(keyword.value, ast.Constant):
            yield "dropped mask", keyword.value, "None"
            yield "inverted mask", keyword.value, f"(({scope.text(keyword.value)}) == 0)"


def _constant(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    """A number one off, a flag turned round."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield "flag turned", node, str(not node.value)
        elif isinstance(node.value, int):
            yield "constant off by one", node, str(node.value + 1)
            if node.value:
                yield "constant off by one", node, str(node.value - 1)


def _order(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    """Two neighbouring arguments in each other's place."""
    if not isinstance(node, ast.Call) or any(isinstance(value, ast.Starred) for value in node.args):
        return
    texts = [scope.text(value) for value in node.args]
    for position in range(len(texts) - 1):
        if texts[position] != texts[position + 1]:
            one, other = node.args[position], node.args[position + 1]
            between = _between(scope, one, other)
            yield "arguments swapped", _Span(one, other), f"{texts[position + 1]}{between}{texts[position]}"


class _Span(ast.expr):
    """From the first node's beginning to the last one's end."""

    def __init__(self, first: ast.expr, last: ast.expr) -> None:
        super().__init__(
            lineno=first.lineno,
            col_offset=first.col_offset,
            end_lineno=last.end_lineno,
            end_col_offset=last.end_col_offset,
        )


def _between(scope: Scope, one: ast.expr, other: ast.expr) -> str:
    whole = scope.text(_Span(one, other))
    return whole[len(scope.text(one)) : len(whole) - len(scope.text(other))]


def _extreme(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    """The smaller for the larger, and back."""
    if not isinstance(node, ast.Call):
        return
    name = scope.text(node.func)
    head, dot, last = name.rpartition(".")
    if last in _EXTREMES:
        yield "min for max", node.func, f"{head}{dot}{_EXTREMES[last]}"


_EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "amin": "amax", "amax": "amin"}


def _name(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    """A variable or an attribute for another of the same kind: k for v, one stride for another, self.a for self.b."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in scope.variables:
        for other, bound in sorted(scope.variables.items()):
            if bound < node.lineno and alike(node.id, other):
                yield "wrong variable", node, other
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        for other in scope.attributes.get(ast.unparse(node.value), ()):
            if alike(node.attr, other):
                yield "wrong attribute", node, f"{scope.text(node.value)}.{other}"


@lru_cache(maxsize=1 << 16)  # each name is held against every other, again and again
def alike(one: str, other: str) -> bool:
    """Whether two names differ in one word only, of two or more, as ``stride_kbs`` and ``stride_vbs`` do.

    Or as ``k`` and ``v`` do, where no second word tells what kind they are of.
    """
    words, others = one.strip("_").split("_"), other.strip("_").split("_")
    differing = sum(a != b for a, b in zip(words, others, strict=False))
    if len(words) != len(others) or differing != 1:
        return False
    return len(words) > 1 or {one, other} in ({"k", "v"}, {"q", "k"}, {"K", "V"})


def _condition(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    """A branch taken the other way."""
    if isinstance(node, (ast.If, ast.While, ast.IfExp)) and not isinstance(node.test, (ast.Compare, ast.Constant)):
        yield "condition turned", node.test, f"(not ({scope.text(node.test)}))"


def _words(name: str) -> set[str]:
    return set(name.lower().split("_"))


OPERATORS: tuple[Callable[[ast.AST, Scope], Iterator[Edit]], ...] = (
    _comparison,
    _arithmetic,
    _dropped_operand,
    _index,
    _length,
    _mask,
    _constant,
    _order,
    _extreme,
    _name,
    _condition,
)
