"""The table of cells: what every pair of backends did in every mode of step, with no cell left empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fuzz.cells import BEHIND, CELLS
from reports.load import VERDICTS

BAD = ("bug", "infra", "stub_gap")  # the worst first
NOT_RUN = "not run"
ONLY_REFUSED = "unsupported"
CELL_COLUMNS = ("pair", "mode", "state", "text", "reason")


def cell_table(steps: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """One row per pair and mode of CELLS, both in order; columns CELL_COLUMNS, all of strings.

    ``state`` is a verdict or "not run"; ``text`` is "ok N", "bug k of N", "unsupported" or "not run"; ``reason`` says why a
    cell has no step that ran, "" where nobody knows.
    """
    counts = _counts(steps)
    why = {(row["pair"], row["mode"]): (row["state"], row["reason"]) for row in cells.to_dict("records")}
    pairs = sorted({pair for pair, _ in (*counts, *why)})
    rows = [
        (pair, mode, *_cell(counts.get((pair, mode), {}), *why.get((pair, mode), ("", ""))))
        for pair in pairs
        for mode in CELLS
    ]
    return pd.DataFrame(rows, columns=list(CELL_COLUMNS)).astype("string")


def legend(table: pd.DataFrame) -> dict[str, int]:
    """Each reason of the table with its number from 1 on, in the order in which they come."""
    reasons = [reason for reason in table["reason"].drop_duplicates() if reason]
    return {reason: number for number, reason in enumerate(reasons, start=1)}


def _counts(steps: pd.DataFrame) -> dict[tuple[str, str], dict[str, int]]:
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for row in steps.to_dict("records"):
        cell = counts.setdefault((row["pair"], row["mode"]), dict.fromkeys(VERDICTS, 0))
        cell[row["verdict"]] += int(row["count"])
    return counts


def _cell(counts: Mapping[str, int], tried: str, reason: str) -> tuple[str, str, str]:
    """State, text and reason of one cell; ``tried`` and ``reason`` are what was found where no step ran."""
    total = sum(counts.values())
    for verdict in BAD:
        if counts.get(verdict):
            return verdict, f"{verdict} {counts[verdict]:,} of {total:,}", ""
    if counts.get("ok"):
        return "ok", f"ok {counts['ok']:,}", ""
    if tried == ONLY_REFUSED or (counts.get(ONLY_REFUSED) and not tried):
        return ONLY_REFUSED, ONLY_REFUSED, reason
    if tried in BAD:
        return tried, tried, reason
    return NOT_RUN, NOT_RUN, f"behind a fault: {reason}" if tried == BEHIND else ""


def rows_of(table: pd.DataFrame) -> dict[str, dict[str, dict[str, Any]]]:
    """Pair -> mode -> the cell's row, with ``number``: its reason's in the legend, 0 for none."""
    numbers = legend(table)
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for row in table.to_dict("records"):
        cell = {str(name): value for name, value in row.items()}
        rows.setdefault(row["pair"], {})[row["mode"]] = {**cell, "number": numbers.get(row["reason"], 0)}
    return rows
