"""Write a comparison, repro by target: compare.md for a pull request, compare.html for the eye, two CSV files for the rest."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reports.render import TEMPLATES

# What stands for a state where there is no room for the word.
MARKS = {"bug": "✗", "other": "≠", "clean": "✓", "fixed": "✓", "unsupported": "∅"}
MEANINGS = {
    "✗": "shows (k/n: in k of n runs only)",
    "✓": "every run ended without a finding",
    "≠": "another fault comes first",
    "∅": "SGLang refuses it",
    "?": "cannot tell",
}
_STATES = ("bug", "clean", "fixed", "unsure", "other", "unsupported", "stub_gap", "infra")
UNCLEAR = ("other", "unsupported", "stub_gap", "infra", "unsure")
REASON_MAX = 200  # characters: a traceback's first line; cells.csv has all of it
CELL_COLUMNS = {
    "repro": "string",
    "signature": "string",
    "target": "string",
    "sglang_version": "string",
    "state": "string",
    "k": "int64",
    "n": "int64",
    "low": "float64",
    "high": "float64",
    "cached": "int64",
    "detail": "string",
}


def comparison_cells(comparison: Mapping[str, Any]) -> pd.DataFrame:
    """One row a cell of ``CompareResult.to_json``, row by row; columns CELL_COLUMNS.

    ``low`` and ``high`` bound how often a run shows the fault that ``state`` speaks of, at 95 %; NaN where nothing was run.
    """
    rows = [{**cell, "signature": row["signature"]} for row in comparison["rows"] for cell in row["cells"]]
    return pd.DataFrame(rows, columns=list(CELL_COLUMNS)).astype(CELL_COLUMNS)


def comparison_matrix(comparison: Mapping[str, Any]) -> pd.DataFrame:
    """Repros as rows, targets as columns in their order; a cell reads "bug 3/3"; "history" comes last."""
    rows = []
    for row in comparison["rows"]:
        cells = [f"{cell['state']} {cell['k']}/{cell['n']}" for cell in row["cells"]]
        rows.append([row["repro"], *cells, history(row)])
    return pd.DataFrame(rows, columns=["repro", *comparison["targets"], "history"], dtype="string")


def history(row: Mapping[str, Any]) -> str:
    """The row in words: when the fault was introduced, fixed, was back again, and whether the last target has it."""
    marks = [cell["state"] for cell in row["cells"] if cell["state"] in ("bug", "clean", "fixed")]
    if "bug" not in marks:
        return "shows on none" if marks else "cannot tell"
    said = [f"{change['kind']} in {change['in'].replace('pypi:', '')}" for change in row["changes"]]
    if row["latent"]:
        return "shows on each" if len(marks) == len(row["cells"]) else "shows on each that can tell"
    return ", ".join([*said, *(["still there"] if marks[-1] == "bug" else [])])


def write_comparison(out: Path, comparison: Mapping[str, Any]) -> list[Path]:
    """Write compare.md, compare.html, compare.csv (the matrix) and cells.csv into ``out``, made if absent; their paths."""
    out.mkdir(parents=True, exist_ok=True)
    written = [out / name for name in ("compare.md", "compare.html", "compare.csv", "cells.csv")]
    markdown, page, matrix, cells = written
    view = _view(comparison)
    markdown.write_text(TEMPLATES.get_template("compare.md.j2").render(view), encoding="utf-8")
    page.write_text(TEMPLATES.get_template("compare.html.j2").render(view), encoding="utf-8")
    comparison_matrix(comparison).to_csv(matrix, index=False)
    comparison_cells(comparison).to_csv(cells, index=False)
    return written


def _view(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """Everything the templates show."""
    targets, rows = comparison["targets"], [_row(row) for row in comparison["rows"]]
    used = {cell["mark"] for row in rows for cell in row["cells"]}
    return {
        "headline": _headline(rows),
        "exit_code": comparison["exit_code"],
        "targets": targets,
        "names": _short(targets),
        "rows": rows,
        "legend": {mark: meaning for mark, meaning in MEANINGS.items() if mark in used},
        "states": [state for state in _STATES if any(cell["state"] == state for row in rows for cell in row["cells"])],
        "notes": _notes(comparison),
        "costs": comparison["costs"],
    }


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    command = shlex.join(["seamripper", "replay", row["repro"]])
    cells = [{**cell, "mark": _mark(cell), "score": _score(cell), "bounds": _bounds(cell)} for cell in row["cells"]]
    return {**row, "name": row["signature"] or Path(row["repro"]).stem, "history": history(row), "cells": cells} | {
        "replay": command
    }


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    worse = sum(row["worse"] for row in rows)
    if worse:
        return f"{worse} of {len(rows)} got worse"
    fixed = sum(row["cells"][-1]["state"] == "fixed" for row in rows)
    return f"Nothing got worse, {fixed} fixed" if fixed else "Nothing got worse"


def _mark(cell: Mapping[str, Any]) -> str:
    mark = MARKS.get(cell["state"], "?")
    return f"{mark} {cell['k']}/{cell['n']}" if mark == "✗" and cell["k"] < cell["n"] else mark


def _score(cell: Mapping[str, Any]) -> str:
    return f"{cell['k']}/{cell['n']}" if cell["n"] else ""


def _bounds(cell: Mapping[str, Any]) -> str:
    """How often a run shows it, as the runs bound it at 95 %."""
    if not cell["n"] or cell["state"] not in ("bug", "other", "clean", "fixed", "unsure"):
        return ""
    low, high = (f"{100 * cell[end]:.0f}" for end in ("low", "high"))
    return f"≥ {low} %" if cell["k"] == cell["n"] else f"≤ {high} %" if not cell["k"] else f"{low}–{high} %"


def _short(targets: Sequence[str]) -> list[str]:
    """The targets as column heads: without what all of them begin with, up to its last ``:``, ``/`` or ``@``."""
    common = os.path.commonprefix(list(targets)) if len(targets) > 1 else ""
    cut = max(common.rfind(sign) for sign in ":/@") + 1
    return [target[cut:] for target in targets]


def _notes(comparison: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Why cells are neither bug nor clean: each reason once, with the targets it is said of."""
    notes: dict[tuple[str, str], list[str]] = {}
    for cell in (cell for row in comparison["rows"] for cell in row["cells"] if cell["state"] in UNCLEAR):
        said_of = notes.setdefault((cell["state"], _reason(cell["detail"])), [])
        if cell["target"] not in said_of:
            said_of.append(cell["target"])
    return [{"state": state, "detail": detail, "targets": targets} for (state, detail), targets in notes.items()]


def _reason(detail: str) -> str:
    """Short, and the same from one process to the next: without addresses."""
    text = " ".join(re.sub(r" at 0x[0-9a-f]+", "", detail).split())
    return text if len(text) <= REASON_MAX else f"{text[: REASON_MAX - 1]}…"
