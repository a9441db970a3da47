"""Saved repros set against targets, as plain data: what each showed where, what was broken and what was mended since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

FAILED = ("bug", "other")


@dataclass(frozen=True, slots=True)
class Cell:
    """One repro on one target. ``k`` of ``n`` runs showed the bug that ``state`` speaks of.

    ``state``: bug (the repro's own signature), other (another bug: ``detail``), unsupported, stub_gap or infra (why:
    ``detail``), clean (every run was completed without a finding), fixed (clean, and an earlier target had the bug).
    """

    repro: str
    target: str
    state: str
    k: int
    n: int
    detail: str = ""
    sglang_version: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One repro on all targets, in the order given."""

    repro: str
    signature: str
    cells: tuple[Cell, ...]

    @property
    def introduced_in(self) -> str | None:
        """The first target with the bug after one without it."""
        states = [cell.state for cell in self.cells]
        pairs = zip(states, self.cells, strict=True)
        return next((c.target for i, (s, c) in enumerate(pairs) if s == "bug" and "clean" in states[:i]), None)

    @property
    def fixed_in(self) -> str | None:
        """The first target without the bug after one with it."""
        return next((cell.target for cell in self.cells if cell.state == "fixed"), None)

    @property
    def is_worse(self) -> bool:
        """Whether it worked on the first target and fails on a later one."""
        return self.cells[0].state == "clean" and any(cell.state in FAILED for cell in self.cells[1:])


@dataclass(frozen=True, slots=True)
class CompareResult:
    targets: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def exit_code(self) -> int:
        return int(any(row.is_worse for row in self.rows))

    @property
    def cells(self) -> list[dict[str, Any]]:
        """All cells as plain dicts, row by row."""
        return [asdict(cell) for row in self.rows for cell in row.cells]

    def to_json(self) -> dict[str, Any]:
        rows = [{**asdict(row), "introduced_in": row.introduced_in, "fixed_in": row.fixed_in} for row in self.rows]
        return {"targets": list(self.targets), "rows": rows, "exit_code": self.exit_code}


def in_order(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The cells of one row, in the order of the targets: clean after the bug was there is "fixed"."""
    states = [cell.state for cell in cells]
    return tuple(
        replace(cell, state="fixed") if cell.state == "clean" and "bug" in states[:index] else cell
        for index, cell in enumerate(cells)
    )
