"""The audit's result as plain data: one row for each answer of a wrapper that a reader may trip over."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

OWN, BASE, MISSING, SHADOWED = "own", "base", "missing", "shadowed"
SIGNATURE, TWIN, WRONG_CHILD = "signature", "twin", "wrong_child"


@dataclass(frozen=True, slots=True, order=True)
class Reader:
    """Where the name is read: file:qualname, and how (plain, call, guarded, store)."""

    place: str
    access: str


@dataclass(frozen=True, slots=True)
class Row:
    """What `wrapper` answers for `name`, what its children say, who reads it, and how much that matters.

    `children` holds (class, what it answers: a value's text, def, or property). `score` orders the rows; `gap` says
    that it reaches the threshold at which a person should look.
    """

    wrapper: str
    name: str
    answer: str
    children: tuple[tuple[str, str], ...]
    readers: tuple[Reader, ...]
    harm: str
    score: float
    why: str
    gap: bool


@dataclass(frozen=True, slots=True)
class Check:
    """One name that a wrapper must answer as the backends below it do, and how to ask.

    `kind` is value or call. `value` is what the children answer: a Python literal, `runner:a.b` for what they take
    from the model runner, or empty for anything. `parameters` are those of a call. `slots` are the constructor
    parameters of the children that the wrapper asks today, and `per_mode` says that the mode chooses among them.
    `on_base` says that the base class of this release has the name too.
    """

    wrapper: str
    name: str
    kind: str
    value: str = ""
    parameters: tuple[str, ...] = ()
    slots: tuple[str, ...] = ()
    per_mode: bool = False
    on_base: bool = False


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A class that wraps attention backends: its module, the constructor parameters that take its children, and what
    its constructor reads off a child: (name, whether it is called)."""

    name: str
    module: str
    slots: tuple[str, ...]
    reads: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Rows ranked worst first."""

    rows: tuple[Row, ...]
    checks: tuple[Check, ...]
    wrappers: tuple[Wrapper, ...]

    @property
    def gaps(self) -> int:
        return sum(row.gap for row in self.rows)

    def to_json(self) -> str:
        return json.dumps({"gaps": self.gaps, **asdict(self)}, sort_keys=True)
