"""Write the answer of a bisection as Markdown, to be pasted into an issue."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from reports.comparison import CELL_COLUMNS
from reports.render import TEMPLATES


def bisection_steps(bisection: Mapping[str, Any]) -> pd.DataFrame:
    """One row a revision that was tried, oldest first, of ``BisectResult.to_json``; columns CELL_COLUMNS."""
    rows = [{**step, "signature": bisection["signature"]} for step in bisection["steps"]]
    return pd.DataFrame(rows, columns=list(CELL_COLUMNS)).astype(CELL_COLUMNS)


def write_bisection(out: Path, bisection: Mapping[str, Any]) -> list[Path]:
    """Write bisect.md and bisect.csv into ``out``, made if absent, and return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    steps = bisection_steps(bisection)
    markdown, csv = out / "bisect.md", out / "bisect.csv"
    view = {"bisection": bisection, "steps": steps.to_dict("records")}
    markdown.write_text(TEMPLATES.get_template("bisect.md.j2").render(view), encoding="utf-8")
    steps.to_csv(csv, index=False)
    return [markdown, csv]
