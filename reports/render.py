"""Write a run's report: summary.md, findings.csv, pair_mode.csv, report.html and junit.xml."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sized
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from fuzz.trace import MODES
from reports.causes import follows_of
from reports.cells import cell_table, legend, rows_of
from reports.junit import write_junit
from reports.load import Run, load_run
from reports.morning import overview_table, since_table
from reports.picture import programs_picture, speed_picture
from reports.replays import doubt, replay_of
from reports.tables import (
    corrupt_table,
    dismissed_table,
    findings_table,
    first_seen_table,
    is_corrupt,
    is_dismissed,
    is_new,
    over_time_table,
    pair_mode_table,
    reason_table,
    throughput_table,
    verdict_table,
)

REASONS_MAX = 20  # rows of the "not judged" table: the rest is in the records and rarely says anything new
BROKEN_MAX = 10


def write_reports(folder: Path) -> list[Path]:
    """Write all reports of a run into its ``folder`` and return their paths.

    Raises NotADirectoryError when there is no such folder.
    """
    run = load_run(folder)
    pair_mode = pair_mode_table(run.steps)
    view = _view(run, pair_mode, run.about.get("title") or folder.resolve().name)
    paths = [folder / name for name in ("summary.md", "findings.csv", "pair_mode.csv", "report.html", "junit.xml")]
    summary, findings_csv, pair_mode_csv, page, junit = paths
    summary.write_text(TEMPLATES.get_template("summary.md.j2").render(view), encoding="utf-8")
    faults = run.findings[~is_corrupt(run.findings) & ~is_dismissed(run.findings)]
    findings_table(faults, run.since).to_csv(findings_csv, index=False)
    pair_mode.to_csv(pair_mode_csv, index=False)
    page.write_text(TEMPLATES.get_template("report.html.j2").render(view), encoding="utf-8")
    write_junit(junit, pair_mode, run.findings[is_new(run.findings)], run.since)
    return paths


def _view(run: Run, pair_mode: pd.DataFrame, title: str) -> dict[str, Any]:
    """Everything the templates show, as plain rows."""
    over_time, first_seen = over_time_table(run.records), first_seen_table(run.findings)
    reasons, cells = reason_table(run.records), cell_table(run.steps, run.cells)
    return {
        "title": title,
        "about": {name: value for name, value in run.about.items() if name != "title"},
        "facts": _facts(run.records),
        "findings": _finding_rows(run.findings[is_new(run.findings)], run.since),
        "overview": _overview(run),
        "verdicts": {row["verdict"]: row for row in _rows(verdict_table(run.records))},
        "pair_mode": _rows(pair_mode),
        "heat": _heat(pair_mode),
        "cells": rows_of(cells),
        "cell_reasons": legend(cells),
        "modes": _modes(pair_mode),
        "first_seen": _rows(first_seen),
        "known": _rows(run.known),
        "since": _rows(since_table(run.since)),
        "since_folder": run.about.get("since", ""),
        "corrupt": _rows(corrupt_table(run.findings)),
        "dismissed": _rows(dismissed_table(run.findings)),
        "by_pair": _rows(throughput_table(run.records, "pair")),
        "by_worker": _rows(throughput_table(run.records, "worker")),
        "reasons": _rows(reasons.head(REASONS_MAX)),
        "reasons_left": max(len(reasons) - REASONS_MAX, 0),
        "broken": run.broken[:BROKEN_MAX],
        "broken_count": len(run.broken),
        "pictures": [programs_picture(over_time, first_seen), speed_picture(over_time)] if len(run.records) else [],
    }


def _overview(run: Run) -> list[dict[str, Any]]:
    """What the page says first: what is new and known, fixed where that was asked, and whatever else there is."""
    always = {"new", "known", *(["fixed since"] if "since" in run.about else [])}
    rows = [row for row in _rows(overview_table(run)) if row["count"] or row["what"] in always]
    return [{**row, "parts": [part for part in rows if part["of"] == row["what"]]} for row in rows if not row["of"]]


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _facts(records: pd.DataFrame) -> dict[str, Any]:
    """The run in numbers; ``seconds`` is wall time. Skipped: the harness was behind SGLang, or the program never ended."""
    executed, refused = (int(records["verdict"].isin(names).sum()) for names in (("ok", "bug"), ("unsupported",)))
    seconds = float(records["elapsed_seconds"].max()) if len(records) else 0.0
    names = ("target", "sglang_version", "device", "runner", "engine")
    return {
        "programs": len(records),
        "fates": {"executed": executed, "refused": refused, "skipped": len(records) - executed - refused},
        "steps": int(records["steps"].sum()),
        "seconds": seconds,
        "workers": int(records["worker"].nunique()),
        "pairs": int(records["pair"].nunique()),
        "steps_per_second": int(records["steps"].sum()) / seconds if seconds else 0.0,
        **{name: ", ".join(sorted(records[name].unique())) for name in names},
    }


def _finding_rows(findings: pd.DataFrame, since: pd.DataFrame) -> list[dict[str, Any]]:
    rows = []
    told = findings.assign(replay=replay_of(findings), earlier=findings["signature"].isin(since["signature"]))
    told = told.assign(follows=follows_of(findings)).sort_values(["first_seconds", "signature"], kind="stable")
    numbers = {signature: number for number, signature in enumerate(told["signature"], start=1)}
    for row in _rows(told.assign(follows=told["follows"].map(numbers).fillna(0).astype("int64"))):
        command = ["seamripper", "replay", row["script"], "--target", row["target"]]
        rows.append({**row, "doubt": doubt(row), "command": shlex.join(command) if row["script"] else ""})
    return rows


def _modes(pair_mode: pd.DataFrame) -> list[str]:
    """All that there are, and those that a newer program brought along."""
    return [*MODES, *sorted(set(pair_mode["mode"]) - set(MODES))]


def _heat(pair_mode: pd.DataFrame) -> dict[str, dict[str, dict[str, Any]]]:
    """Cells of the pair × mode map: the counts, the worst verdict, and ``heat`` 1..4 by the share of bad steps."""
    cells: dict[str, dict[str, dict[str, Any]]] = {}
    for row in _rows(pair_mode):
        bad = next((verdict for verdict in ("bug", "infra", "stub_gap") if row[verdict]), "")
        kind = bad or ("unsupported" if row["unsupported"] == row["total"] else "ok")
        share = row[bad] / row["total"] if bad else 0.0
        # Thresholds a decade apart: one bad step in a thousand must not look like every second one.
        heat = 1 + sum(share >= limit for limit in (0.001, 0.01, 0.1))
        cells.setdefault(row["pair"], {})[row["mode"]] = {**row, "worst": kind, "heat": heat}
    return cells


def markdown_text(value: object) -> str:
    """``value`` on one line, with everything that Markdown would take for markup escaped."""
    text = " ".join(str(value).split())
    # An underscore inside a word is no markup, and names are full of them.
    return re.sub(r"[\\`*\[\]<>|~]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)


def markdown_code(value: object) -> str:
    """``value`` as a code span that is safe inside a table: one line, no backtick, pipes escaped."""
    text = " ".join(str(value).split()).replace("`", "'").replace("|", "\\|")
    return f"`{text}`" if text else ""


def breakable(value: object, marks: str = ":/._=-") -> Markup:
    """Escaped for HTML, and free to break after the ``marks`` that hold a long name together."""
    return Markup(re.sub(rf"([{re.escape(marks)}])(?=\w)", r"\1<wbr>", str(escape(value))))


def duration(seconds: float) -> str:
    """A time as a person says it: "0.4 s", "42 s", "12 min 05 s", "7 h 30 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def counted(things: int | Sized, noun: str) -> str:
    """A number, or how many ``things`` there are, with what is counted: "1 step", "1,200 steps"."""
    number = len(things) if isinstance(things, Sized) else things
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def rate(value: float) -> str:
    """A rate with about three digits; "–" where there is none."""
    return "–" if pd.isna(value) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reports"),
        autoescape=lambda name: bool(name) and ".html" in str(name),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "md": markdown_text,
        "code": markdown_code,
        "breakable": breakable,
        "duration": duration,
        "rate": rate,
    }
    environment.filters["count"] = counted
    environment.filters["number"] = lambda value: f"{value:,}"
    environment.filters["percent"] = lambda value: "–" if pd.isna(value) else f"{100 * value:.1f} %"
    return environment


TEMPLATES = _templates()
