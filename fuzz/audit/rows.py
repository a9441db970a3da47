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
class Answered:
    """A name that callers read and the wrapper itself answers: nothing to mend, but worth a test.

    `slots` are the constructor parameters of the children to which the wrapper hands the question, if it does.
    """

    wrapper: str
    name: str
    kind: str
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A class that wraps attention backends: where it is, and the constructor parameters that take its children."""

    name: str
    module: str
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Rows ranked worst first."""

    rows: tuple[Row, ...]
    answered: tuple[Answered, ...]
    wrappers: tuple[Wrapper, ...]

    @property
    def gaps(self) -> int:
        return sum(row.gap for row in self.rows)

    def to_json(self) -> str:
        return json.dumps({"gaps": self.gaps, **asdict(self)}, sort_keys=True)
