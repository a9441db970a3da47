"""What a condition in SGLang's code says about an attention backend: its class, the names it has, its flags."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from fuzz.audit.reads import Receiver


@dataclass(frozen=True, slots=True)
class Facts:
    """Holds where a condition is true: expressions of a class or not of it, names present, flags read as true."""

    is_a: tuple[tuple[str, frozenset[str]], ...] = ()
    is_not: tuple[tuple[str, frozenset[str]], ...] = ()
    present: frozenset[tuple[str, str]] = frozenset()
    flags: frozenset[str] = frozenset()

    def __add__(self, other: Facts) -> Facts:
        return Facts(
            self.is_a + other.is_a,
            self.is_not + other.is_not,
            self.present | other.present,
            self.flags | other.flags,
        )


@dataclass(slots=True)
class State:
    """What is known at one point of a function: which expressions hold a backend, and the facts on the way there."""

    backends: dict[str, Receiver] = field(default_factory=dict)
    present: frozenset[tuple[str, str]] = frozenset()
    flags: frozenset[str] = frozenset()
    methods: dict[str, tuple[Receiver, str]] = field(default_factory=dict)
    aliases: dict[str, frozenset[str]] = field(default_factory=dict)

    def copy(self) -> State:
        return State(dict(self.backends), self.present, self.flags, dict(self.methods), dict(self.aliases))

    def join(self, other: State) -> None:
        for key, receiver in other.backends.items():
            self.backends[key] = self.backends[key] | receiver if key in self.backends else receiver
        self.present &= other.present
        self.flags &= other.flags


@dataclass(frozen=True, slots=True)
class Conditions:
    """Reads conditions. `evaluate` gives the receiver of an expression, `classes` the heirs of the classes it names,
    `having` the wrappers that have a name, `flags` the flags that a variable stands for."""

    evaluate: Callable[[ast.expr], Receiver | None]
    classes: Callable[[ast.expr], frozenset[str]]
    having: Callable[[str], frozenset[str]]
    flags: Callable[[str], frozenset[str]]

    def of(self, test: ast.expr) -> tuple[Facts, Facts]:
        """The facts where the test is true, and where it is false."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            true, false = self.of(test.operand)
            return false, true
        if isinstance(test, ast.BoolOp):
            parts = [self.of(v) for v in test.values]
            if isinstance(test.op, ast.And):
                return sum((p[0] for p in parts), Facts()), Facts()
            return Facts(), sum((p[1] for p in parts), Facts())
        if key_of(test) and self.flags(key_of(test)):
            return Facts(flags=self.flags(key_of(test))), Facts()
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and _is_none(test.comparators[0]):
            true, false = self.of(test.left)
            return (false, true) if isinstance(test.ops[0], (ast.Is, ast.Eq)) else (true, false)
        if isinstance(test, ast.Call) and isinstance(test.func, ast.Name):
            return self._call(test)
        asked = test.func if isinstance(test, ast.Call) else test
        if isinstance(asked, ast.Attribute) and self.evaluate(asked.value) is not None:
            return Facts(flags=frozenset({asked.attr})), Facts()
        return Facts(), Facts()

    def _call(self, test: ast.Call) -> tuple[Facts, Facts]:
        assert isinstance(test.func, ast.Name)
        if test.func.id == "bool" and len(test.args) == 1:
            return self.of(test.args[0])
        if len(test.args) < 2 or self.evaluate(test.args[0]) is None:
            return Facts(), Facts()
        key = key_of(test.args[0])
        if test.func.id == "isinstance" and key:
            heirs = self.classes(test.args[1])
            return Facts(is_a=((key, heirs),)), Facts(is_not=((key, heirs),))
        if test.func.id in ("hasattr", "getattr") and isinstance(test.args[1], ast.Constant):
            name = str(test.args[1].value)
            present = frozenset({(key, name)}) if key else frozenset()
            flags = frozenset({name}) if test.func.id == "getattr" else frozenset()
            absent = ((key, self.having(name)),) if key and test.func.id == "hasattr" else ()
            return Facts(present=present, flags=flags), Facts(is_not=absent)
        return Facts(), Facts()


def apply(state: State, facts: Facts) -> None:
    for key, classes in facts.is_a:
        if key in state.backends:
            state.backends[key] = state.backends[key].only(classes)
    for key, classes in facts.is_not:
        if key in state.backends:
            state.backends[key] = state.backends[key].without(classes)
    state.present |= facts.present
    state.flags |= facts.flags


def key_of(node: ast.expr) -> str:
    """A text for `x`, `x.y` and `f()`, equal for equal expressions; empty for anything longer-lived than that."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = key_of(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    if isinstance(node, ast.Call) and not node.args and not node.keywords:
        inner = key_of(node.func)
        return f"{inner}()" if inner else ""
    return ""


def ends_here(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
