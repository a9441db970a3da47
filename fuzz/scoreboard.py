"""What `bench --bugs` answers: a row a known bug, and the total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from fuzz.hunted import DETECTED, MISSED, UNCLEAR, Score
from fuzz.known_bugs import AUDIT

STYLES = {DETECTED: "green", MISSED: "red", UNCLEAR: "yellow"}


def scoreboard(scores: Sequence[Score]) -> Table:
    """Medians over the seeds; a dash where most seeds did not detect it."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in ("bug", "", "seeds", "programs", "s", "ops", "oracle", "shown by, or why not", "script exits"):
        table.add_column(column, overflow="fold")
    for score in scores:
        best, is_read = score.best, score.bug.by == AUDIT
        table.add_row(
            Text(score.bug.id),
            Text(best.state, STYLES.get(best.state, "")),
            Text(f"{score.detected}/{len(score.results)}"),
            Text("–" if score.programs is None or is_read else str(score.programs)),
            Text("–" if score.seconds is None else f"{score.seconds:.0f}"),
            Text(str(best.ops) if best.ops else "–"),
            Text(best.oracle or "–"),
            Text(best.signature if best.state == DETECTED else best.detail or best.signature or "–"),
            Text(" / ".join(map(str, best.exits)) or "–"),
        )
    return table


def headline(scores: Sequence[Score]) -> str:
    """How many were detected by any seed, and by which oracle first."""
    found = [score for score in scores if score.best.state == DETECTED]
    counts = Counter(score.best.oracle for score in found).most_common()
    oracles = ", ".join(f"{oracle} {count}" for oracle, count in counts)
    return f"{len(found)} of {len(scores)} known bugs detected" + (f" ({oracles})" if oracles else "")


def board_json(scores: Sequence[Score]) -> dict[str, Any]:
    detected = sum(score.best.state == DETECTED for score in scores)
    return {"detected": detected, "total": len(scores), "bugs": [score.to_json() for score in scores]}
