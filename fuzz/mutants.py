"""Chooses mutants: one-token faults at random places of the attention code that a campaign is known to run."""

from __future__ import annotations

import ast
import difflib
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fuzz.mutate import Scope, Source, edits

# Attention metadata code and kernels, in the places where the supported releases keep them. Which of them matter on a
# target is for the executed lines to say.
PLACES = (
    "sglang/srt/layers/attention/*.py",
    "sglang/srt/layers/attention/triton_ops/*.py",
    "sglang/kernels/ops/attention/*.py",
    "sglang/kernels/ops/kvcache/*.py",
    "sglang/kernels/ops/speculative/*.py",
    "sglang/srt/mem_cache/kv_index_translator.py",
    "sglang/srt/speculative/eagle_*.py",
    "sglang/srt/speculative/spec_utils.py",
)
# What only tells a GPU's compiler or scheduler how to run a kernel: nothing that is computed depends on it.
_HINTS = frozenset({"num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack", "extra_kargs"})
_LOGGERS = ("logger", "logging", "warnings", "print")


@dataclass(frozen=True, slots=True)
class Mutant:
    """``text[start:end]`` of ``file`` (relative to what holds sglang/), which is ``before``, becomes ``after``.

    ``place`` is the qualified name of the function, ``line`` where the text begins. Offsets are in characters.
    """

    file: str
    line: int
    place: str
    operator: str
    start: int
    end: int
    before: str
    after: str

    def apply(self, text: str) -> str:
        assert text[self.start : self.end] == self.before, "the file is not the one the mutant was made for"
        return text[: self.start] + self.after + text[self.end :]

    def diff(self, text: str) -> str:
        """As a patch shows it, with two lines round it."""
        lines, changed = text.splitlines(), self.apply(text).splitlines()
        return "\n".join(difflib.unified_diff(lines, changed, self.file, self.file, n=2, lineterm=""))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def choose(folder: Path, executed: Mapping[str, Iterable[int]], count: int, seed: int) -> list[Mutant]:
    """``count`` different mutants (fewer if there are no more) of the target in ``folder``.

    Each: an executed statement, then a kind of fault that it can have, then one of those, all alike likely.
    """
    statements = [
        kinds
        for file in sorted(files(folder) & executed.keys())
        for kinds in by_statement(file, (folder / file).read_text(encoding="utf-8"), set(executed[file]))
    ]
    chance = random.Random(seed)
    chosen: list[Mutant] = []
    while len(chosen) < count and statements:
        at = chance.randrange(len(statements))
        kinds = statements[at]
        kind = chance.choice(sorted(kinds))
        mutant = kinds[kind].pop(chance.randrange(len(kinds[kind])))
        if not kinds[kind]:
            del kinds[kind]
        if not kinds:
            statements.pop(at)
        if _parses(mutant, (folder / mutant.file).read_text(encoding="utf-8")):
            chosen.append(mutant)
    return chosen


def files(folder: Path) -> set[str]:
    """The files of PLACES that the target has."""
    return {path.relative_to(folder).as_posix() for place in PLACES for path in folder.glob(place)}


def by_statement(file: str, text: str, executed: set[int]) -> Iterator[dict[str, list[Mutant]]]:
    """For each executed statement in a function that can be mutated: the kind of fault -> its mutants there."""
    walk = _Walk(file, text, executed)
    for mutants in walk.statements():
        kinds: dict[str, list[Mutant]] = defaultdict(list)
        for mutant in mutants:
            kinds[mutant.operator].append(mutant)
        if kinds:
            yield dict(kinds)


def _parses(mutant: Mutant, text: str) -> bool:
    try:
        ast.parse(mutant.apply(text))
    except SyntaxError:
        return False
    return True


class _Walk:
    """Goes through the functions of one file, statement by statement."""

    def __init__(self, file: str, text: str, executed: set[int]) -> None:
        self.file, self.source, self.executed = file, Source(text), executed

    def statements(self) -> Iterator[list[Mutant]]:
        yield from self._in_scope(ast.parse(self.source.text), "", {})

    def _in_scope(self, node: ast.AST, place: str, attributes: dict[str, list[str]]) -> Iterator[list[Mutant]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from self._in_scope(child, f"{place}{child.name}.", _attributes(child))
            elif isinstance(child, ast.FunctionDef):
                scope = Scope(self.source, _variables(child), attributes or _attributes(child))
                yield from self._body(child, f"{place}{child.name}", scope)
                if place and self._ran(child.body) and _delegates(child):
                    yield [self._removed(child, f"{place}{child.name}")]
            elif isinstance(child, (ast.If, ast.Try)):
                yield from self._in_scope(child, place, attributes)

    def _body(self, node: ast.AST, place: str, scope: Scope) -> Iterator[list[Mutant]]:
        for statement in _nested(node):
            if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                yield from self._body(statement, f"{place}.{statement.name}", scope)
                continue
            if statement.lineno in self.executed and not _is_talk(statement):
                yield list(self._mutants(statement, place, scope))
            yield from self._body(statement, place, scope)

    def _mutants(self, statement: ast.stmt, place: str, scope: Scope) -> Iterator[Mutant]:
        for node in _own(statement):
            for operator, at, after in edits(node, scope):
                if at.lineno in self.executed:  # of a statement of many lines, the one branch that was taken
                    yield self._mutant(at, place, operator, after)
        if _can_go(statement):
            yield self._mutant(statement, place, "dropped statement", "pass")

    def _mutant(self, node: ast.expr | ast.stmt, place: str, operator: str, after: str) -> Mutant:
        start, end = self.source.span(node)
        return Mutant(self.file, node.lineno, place, operator, start, end, self.source.text[start:end], after)

    def _removed(self, function: ast.FunctionDef, place: str) -> Mutant:
        mutant = self._mutant(function, place, "removed delegation", "pass")
        if not function.decorator_list:
            return mutant
        start = self.source.span(function.decorator_list[0])[0] - 1  # the @ before it
        return replace(mutant, start=start, before=self.source.text[start : mutant.end])

    def _ran(self, body: list[ast.stmt]) -> bool:
        return any(statement.lineno in self.executed for statement in body)


def _nested(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements directly below ``node``, those of its handlers and branches included."""
    for name in ("body", "orelse", "finalbody", "handlers"):
        for child in getattr(node, name, ()):
            if isinstance(child, ast.ExceptHandler):
                yield from child.body
            elif isinstance(child, ast.stmt):
                yield child


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """The statement and its expressions; not what is below it in blocks, what it annotates, nor what f-strings hold."""
    yield statement
    todo: list[ast.AST] = [
        child for child in ast.iter_child_nodes(statement) if isinstance(child, (ast.expr, ast.withitem))
    ]
    if isinstance(statement, ast.AnnAssign):
        todo = [statement.value] if statement.value else []
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, (ast.JoinedStr, ast.Lambda)):
            continue
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.keyword):
                todo += [child.value] if child.arg not in _HINTS else []
            elif isinstance(child, (ast.expr, ast.comprehension)):
                todo.append(child)


def _is_talk(statement: ast.stmt) -> bool:
    """What says, checks, documents or imports, and computes nothing."""
    if isinstance(statement, (ast.Assert, ast.Raise, ast.Import, ast.ImportFrom, ast.Pass, ast.Global)):
        return True
    if not isinstance(statement, ast.Expr):
        return False
    return isinstance(statement.value, ast.Constant) or ast.unparse(statement.value).startswith(_LOGGERS)


def _can_go(statement: ast.stmt) -> bool:
    """A statement that leaves its names bound when it goes: a call, an update, a store into something."""
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in statement.targets)
    return isinstance(statement, (ast.Expr, ast.AugAssign, ast.Continue, ast.Break))


def _delegates(function: ast.FunctionDef) -> bool:
    """A method or property that hands on to something of the same name, and does little else."""
    names = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    return function.name in names and not function.name.startswith("__") and len(function.body) <= 3


def _variables(function: ast.FunctionDef) -> dict[str, int]:
    """Name -> the line where the function binds it first; its arguments on its own line."""
    arguments = function.args
    bound = {each.arg: function.lineno for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound[node.id] = min(node.lineno, bound.get(node.id, node.lineno))
    return bound


def _attributes(scope: ast.ClassDef | ast.FunctionDef) -> dict[str, list[str]]:
    """What is read of what: the text before the dot -> the names after it."""
    read: dict[str, set[str]] = defaultdict(set)
    for node in ast.walk(scope):
        if isinstance(node, ast.Attribute):
            read[ast.unparse(node.value)].add(node.attr)
    return {owner: sorted(names) for owner, names in read.items()}
