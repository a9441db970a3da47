"""What a line of revisions, each with the bug, without it or not to be told, says of when it came and went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

INTRODUCED, FIXED, BACK_AGAIN = "introduced", "fixed", "back again"


@dataclass(frozen=True, slots=True)
class Change:
    """It happened in one of the revisions ``first`` to ``last`` (positions); those before ``last`` cannot be told.

    ``kind``: introduced (no revision before has the bug), fixed, or back again (it had been fixed).
    """

    kind: str
    first: int
    last: int

    @property
    def is_exact(self) -> bool:
        return self.first == self.last

    def named(self, names: Sequence[str]) -> str:
        """The revision, or FIRST..LAST where one of several made the change."""
        return names[self.last] if self.is_exact else f"{names[self.first]}..{names[self.last]}"


def changes(marks: Sequence[bool | None]) -> tuple[Change, ...]:
    """In order. ``marks``: True with the bug, False without it, None not to be told."""
    found: list[Change] = []
    told = [index for index, mark in enumerate(marks) if mark is not None]
    for before, after in pairwise(told):
        if marks[before] != marks[after]:
            had_it = any(marks[index] for index in told[: told.index(after)])
            kind = FIXED if marks[before] else BACK_AGAIN if had_it else INTRODUCED
            found.append(Change(kind, before + 1, after))
    return tuple(found)
