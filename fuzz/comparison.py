"""Saved repros set against targets, as plain data: what each showed where, what was broken, what was mended since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fuzz.history import BACK_AGAIN, FIXED, INTRODUCED, Change, changes
from fuzz.interval import interval

FAILED = ("bug", "other")
CLEAN = ("clean", "fixed")


@dataclass(frozen=True, slots=True)
class Cell:
    """One repro on one target. ``k`` of ``n`` runs showed the bug that ``state`` speaks of, ``cached`` of them earlier.

    ``state``: bug (the repro's own signature), other (another bug: ``detail``), unsupported, stub_gap or infra (why:
    ``detail``), clean (every run was completed without a finding), fixed (clean, and an earlier target had the bug),
    unsure (as clean, in too few runs for a repro that shows so rarely: ``detail``).
    """

    repro: str
    target: str
    state: str
    k: int
    n: int
    detail: str = ""
    sglang_version: str = ""
    cached: int = 0

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % bounds of how often a run shows it; None where nothing was run."""
        return interval(self.k, self.n) if self.n else None

    @property
    def mark(self) -> bool | None:
        """Whether the target has the bug; None: cannot tell."""
        return True if self.state == "bug" else False if self.state in CLEAN else None

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval or (None, None)
        return {**asdict(self), "low": low, "high": high}


@dataclass(frozen=True, slots=True)
class Row:
    """One repro on all targets, in the order given."""

    repro: str
    signature: str
    cells: tuple[Cell, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        return changes([cell.mark for cell in self.cells])

    @property
    def introduced_in(self) -> str | None:
        """The first target with the bug after one without it; FIRST..LAST where those in between cannot be told."""
        return self._first(INTRODUCED)

    @property
    def fixed_in(self) -> str | None:
        """The first target without the bug after one with it, likewise."""
        return self._first(FIXED)

    @property
    def back_again_in(self) -> str | None:
        """The first target that has the bug again after one without it, likewise."""
        return self._first(BACK_AGAIN)

    @property
    def is_latent(self) -> bool:
        """Whether each target that can be told has the bug: it is older than the first, and nobody has mended it."""
        marks = {cell.mark for cell in self.cells} - {None}
        return marks == {True}

    @property
    def is_worse(self) -> bool:
        """Whether it worked on the first target and fails on a later one."""
        return self.cells[0].state == "clean" and any(cell.state in FAILED for cell in self.cells[1:])

    def to_json(self) -> dict[str, Any]:
        names = [cell.target for cell in self.cells]
        return {
            "repro": self.repro,
            "signature": self.signature,
            "cells": [cell.to_json() for cell in self.cells],
            "introduced_in": self.introduced_in,
            "fixed_in": self.fixed_in,
            "back_again_in": self.back_again_in,
            "latent": self.is_latent,
            "worse": self.is_worse,
            "changes": [{"kind": change.kind, "in": change.named(names)} for change in self.changes],
        }

    def _first(self, kind: str) -> str | None:
        names = [cell.target for cell in self.cells]
        return next((change.named(names) for change in self.changes if change.kind == kind), None)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one target cost, in seconds of wall time. ``runs`` were made, ``cached`` more taken from earlier ones."""

    target: str
    import_seconds: float = 0.0
    run_seconds: float = 0.0
    runs: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class CompareResult:
    targets: tuple[str, ...]
    rows: tuple[Row, ...]
    costs: tuple[Cost, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        return int(any(row.is_worse for row in self.rows))

    @property
    def cells(self) -> list[dict[str, Any]]:
        """All cells as plain dicts, row by row."""
        return [cell.to_json() for row in self.rows for cell in row.cells]

    def to_json(self) -> dict[str, Any]:
        return {
            "targets": list(self.targets),
            "rows": [row.to_json() for row in self.rows],
            "costs": [asdict(cost) for cost in self.costs],
            "exit_code": self.exit_code,
        }


def in_order(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The cells of one row, in the order of the targets: clean after the bug was there is "fixed"."""
    states = [cell.state for cell in cells]
    return tuple(
        replace(cell, state="fixed") if cell.state == "clean" and "bug" in states[:index] else cell
        for index, cell in enumerate(cells)
    )
