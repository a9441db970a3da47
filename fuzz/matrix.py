"""The tables of comparisons and bisections, for people."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from rich.table import Table
from rich.text import Text

from fuzz.answers import one_line, plain_table, state_text
from fuzz.bisection import BisectResult
from fuzz.comparison import Cell, CompareResult, Row

COLUMNS_MAX = 6  # targets that have a column of their own: more leave a terminal's columns no room for words
UNCLEAR = ("other", "unsupported", "stub_gap", "infra", "unsure")


def compare_table(result: CompareResult) -> Table:
    """Repros down, targets across, and when each fault came and went; of many targets, the stretches of one state."""
    across = result.targets if len(result.targets) <= COLUMNS_MAX else ("history",)
    made = plain_table("repro", *across, "introduced in", "fixed in", "")
    for row in result.rows:
        cells = [state_text(cell.state).append(f" {_shown(cell)}", "dim") for cell in row.cells]
        if len(result.targets) > COLUMNS_MAX:
            cells = [_history(row)]
        places = (Text(place or "–") for place in (row.introduced_in, row.fixed_in))
        made.add_row(Text(Path(row.repro).name), *cells, *places, Text(_remark(row)))
    return made


def _history(row: Row) -> Text:
    """A line for each stretch of targets, in their order, that have the same state."""
    lines = []
    for state, stretch in groupby(row.cells, key=lambda cell: cell.state):
        first, *rest = (cell.target for cell in stretch)
        lines.append(state_text(state).append(f" {first} to {rest[-1]}" if rest else f" {first}", "dim"))
    return Text("\n").join(lines)


def compare_notes(result: CompareResult) -> list[str]:
    """Why cells say neither bug nor clean, each reason once; then what was not run but remembered."""
    notes = (
        f"{cell.target}: {cell.state}: {one_line(cell.detail)}"
        for row in result.rows
        for cell in row.cells
        if cell.state in UNCLEAR
    )
    cached = sum(cell.cached for row in result.rows for cell in row.cells)
    total = sum(cell.n for row in result.rows for cell in row.cells)
    said = [f"* {cached} of {total} runs were not made now but taken from the cache (--no-cache makes them)"]
    return [*dict.fromkeys(notes), *(said if cached else [])]


def bisect_table(result: BisectResult) -> Table:
    """The revisions that were tried, from the oldest to the newest."""
    made = plain_table("revision", "state", "shows", "")
    for cell in result.cells:
        detail = one_line(cell.detail) if cell.state in UNCLEAR else ""
        title = result.names.get(cell.target, cell.target)
        made.add_row(Text(title), state_text(cell.state), Text(_shown(cell)), Text(detail))
    return made


def _shown(cell: Cell) -> str:
    """k/n, with the bounds of the rate that it does not say by itself; a star where all of it comes from the cache."""
    if cell.interval is None:
        return f"{cell.k}/{cell.n}"
    low, high = (f"{100 * end:.0f}" for end in cell.interval)
    bounds = f"≥{low} %" if cell.k == cell.n else f"≤{high} %" if cell.k == 0 else f"{low}–{high} %"
    return f"{cell.k}/{cell.n} {bounds}{' *' if cell.cached == cell.n else ''}"


def _remark(row: Row) -> str:
    if row.back_again_in:
        return f"back again in {row.back_again_in}"
    return "latent" if row.is_latent else ""
