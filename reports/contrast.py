"""Write what a target shows that its baseline does not, and the other way round: contrast.md, .csv and .html."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from reports.render import TEMPLATES

COLUMNS = ("state", "signature", "title", "pair", "mode")
COULD_NOT_RUN = 3
SIDES = ("baseline", "target")


def contrast_table(result: Mapping[str, Any]) -> pd.DataFrame:
    """One row a fault, as ``ContrastResult.to_json`` has them: COLUMNS, then programs, k and n of each side.

    ``baseline_programs`` of the campaign showed it there; ``baseline_k`` of ``baseline_n`` runs of one program did.
    """
    rows = []
    for one in result["differences"]:
        row = {name: one[name] for name in COLUMNS}
        for side in SIDES:
            row |= {f"{side}_programs": one["programs"][side]}
            row |= {f"{side}_k": one[side]["shown"], f"{side}_n": one[side]["runs"]}
        rows.append({**row, "detail": one["detail"], "script": one["script"]})
    numbers = [f"{side}_{name}" for side in SIDES for name in ("programs", "k", "n")]
    table = pd.DataFrame(rows, columns=[*COLUMNS, *numbers, "detail", "script"])
    return table.astype({**dict.fromkeys(table.columns, "string"), **dict.fromkeys(numbers, "int64")})


def write_contrast(out: Path, result: Mapping[str, Any]) -> list[Path]:
    """Write contrast.md, contrast.csv and contrast.html into ``out``, made if absent, and return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    table = contrast_table(result)
    view = {"result": result, "rows": _rows(table, result), "headline": headline(result)}
    written = [out / f"contrast.{suffix}" for suffix in ("md", "csv", "html")]
    markdown, csv, page = written
    markdown.write_text(TEMPLATES.get_template("contrast.md.j2").render(view), encoding="utf-8")
    table.to_csv(csv, index=False)
    page.write_text(TEMPLATES.get_template("contrast.html.j2").render(view), encoding="utf-8")
    return written


def headline(result: Mapping[str, Any]) -> str:
    """What matters in a few words: "1 new fault", "Nothing new", "Could not run"."""
    if result["exit_code"] == COULD_NOT_RUN:
        return "Could not run"
    new = result["new"]
    return f"{new} new fault{'' if new == 1 else 's'}" if new else "Nothing new"


def _rows(table: pd.DataFrame, result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of the table with how to run each again, and with its program."""
    rows = [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
    for row, one in zip(rows, result["differences"], strict=True):
        command = ["seamripper", "compare", row["script"], "--targets", result["baseline"], result["target"]]
        row["command"] = shlex.join(command) if row["script"] else ""
        row["again"] = (
            " → ".join(f"{row[f'{side}_k']} of {row[f'{side}_n']}" for side in SIDES) if row["target_n"] else "–"
        )
        row["program"] = one["program"]
    return rows
