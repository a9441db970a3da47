"""What a search for the place where a bug came or went has found, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fuzz.comparison import Cell
from fuzz.history import FIXED, INTRODUCED, Change, changes

EXACT, CANNOT_TELL = 0, 125


@dataclass(frozen=True, slots=True)
class BisectResult:
    """``line`` is all revisions from the oldest to the newest, ``cells`` what those tried showed, in their order.

    ``names`` says more of a revision than its target spec (a commit's subject). ``refusal``: why it was not begun.
    """

    repro: str
    signature: str
    line: tuple[str, ...]
    cells: tuple[Cell, ...]
    names: Mapping[str, str]
    refusal: str = ""

    @property
    def changes(self) -> tuple[Change, ...]:
        """Positions are those in ``line``."""
        return changes(self._marks)

    @property
    def is_exact(self) -> bool:
        """Whether each coming and going is known to the revision."""
        marks = self._marks
        told = [index for index, mark in enumerate(marks) if mark is not None]
        if self.refusal or True not in marks:
            return False
        # Nothing is known of what lies before the first that can be told, or behind the last.
        open_ended = (marks[told[0]] and told[0] > 0) or (marks[told[-1]] and told[-1] < len(marks) - 1)
        return not open_ended and all(change.is_exact for change in self.changes)

    @property
    def exit_code(self) -> int:
        return EXACT if self.is_exact else CANNOT_TELL

    @property
    def answers(self) -> list[str]:
        """In words, a line each: when it was introduced, when it was fixed, if it came back, what cannot be told."""
        if self.refusal:
            return [f"cannot tell: {self.refusal}"]
        marks = self._marks
        told = [index for index, mark in enumerate(marks) if mark is not None]
        if True not in marks:
            return ["cannot tell: the bug shows on none of them"]
        said = [f"{change.kind} in {self._where(change)}" for change in self.changes]
        kinds = {change.kind for change in self.changes}
        if INTRODUCED not in kinds:
            said.insert(0, f"introduced in or before {self._title(told[0])}{self._untold(0, told[0])}")
        if marks[told[-1]]:
            said.append(f"not fixed in {self._title(told[-1])}{self._untold(told[-1] + 1, len(marks))}")
        return said

    def to_json(self) -> dict[str, Any]:
        first = {kind: next((c for c in self.changes if c.kind == kind), None) for kind in (INTRODUCED, FIXED)}
        return {
            "repro": self.repro,
            "signature": self.signature,
            "revisions": len(self.line),
            "introduced_in": self._named(first[INTRODUCED]),
            "fixed_in": self._named(first[FIXED]),
            "changes": [
                {"kind": change.kind, "first": self.line[change.first], "last": self.line[change.last]}
                for change in self.changes
            ],
            "answers": self.answers,
            "steps": [cell.to_json() for cell in self.cells],
            "refusal": self.refusal,
            "exit_code": self.exit_code,
        }

    @property
    def _marks(self) -> list[bool | None]:
        tried = {cell.target: cell.mark for cell in self.cells}
        return [tried.get(target) for target in self.line]

    def _named(self, change: Change | None) -> str | None:
        return change.named(self.line) if change is not None else None

    def _where(self, change: Change) -> str:
        if change.is_exact:
            return self._title(change.last)
        return (
            f"one of {self._title(change.first)} .. {self._title(change.last)}{self._untold(change.first, change.last)}"
        )

    def _title(self, position: int) -> str:
        return self.names.get(self.line[position], self.line[position])

    def _untold(self, start: int, end: int) -> str:
        """Why those from ``start`` up to ``end`` do not tell, each reason once."""
        targets = set(self.line[start:end])
        reasons = dict.fromkeys(
            f"{cell.state}: {cell.detail}" for cell in self.cells if cell.target in targets and cell.mark is None
        )
        return f" (cannot tell: {'; '.join(reasons)})" if reasons else ""
