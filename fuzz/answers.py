"""What the verbs answer: short tables for people, JSON for scripts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from fuzz import doctor
from fuzz.audit import AuditReport
from fuzz.bench import Result, by_oracle
from fuzz.comparison import Cell
from fuzz.display import STYLES, is_corrupt, is_new_bug, label_of
from fuzz.order import CampaignResult
from fuzz.recheck import GONE, NOT_TRIED, UNCLEAR
from fuzz.revisions import ReplayResult, ShrinkResult
from fuzz.script import Provenance, ScriptError, write_script
from fuzz.since import FIXED, MET, SHOWS
from fuzz.since import UNCLEAR as UNCLEAR_SINCE

COULD_NOT_RUN = 3
AUDIT_ROWS_MAX = 20  # a longer table is not read; the rows are ranked, and --json has all
TITLE_COLUMNS = 90  # the signature tells the rest
FAULT_COLUMNS = 32  # of a mutant's text: its diff has all of it


def campaign_json(result: CampaignResult, reports: Sequence[Path]) -> dict[str, Any]:
    return {
        "exit_code": result.exit_code,
        "new": sum(is_new_bug(finding) for finding in result.findings),
        "corrupt": sum(is_corrupt(finding) for finding in result.findings),
        "findings": result.findings,
        "programs": result.programs,
        "steps": result.steps,
        "out": str(result.out),
        "scripts": [str(path) for path in result.scripts],
        "reports": [str(path) for path in reports],
        "interrupted": result.interrupted,
        "reason": result.reason,
        "known": list(result.known),
        "since": list(result.since),
    }


def known_lines(result: CampaignResult) -> list[str]:
    """One for each known fault that no longer shows, and one for all of which nothing can be told."""
    gone = [one for one in result.known if one["state"] == GONE]
    unclear = [Path(one["script"]).name for one in result.known if one["state"] in (UNCLEAR, NOT_TRIED)]
    lines = [f"known and no longer shown: {one['script']} ({one['reason']})" for one in gone]
    return [*lines, *([f"known, and nothing can be told of: {', '.join(unclear)}"] if unclear else [])]


def since_lines(result: CampaignResult) -> list[str]:
    """One for each fault of the earlier run that no program of this one met."""
    return [f"{_since(one)}: {one['signature']}" for one in result.since if one["state"] != MET]


def _since(one: dict[str, Any]) -> str:
    if one["state"] == FIXED:
        return f"fixed since the earlier run (clean in {one['reruns']} runs of its program)"
    if one["state"] == SHOWS:
        return "not met, and its program still shows it"
    return (
        f"not seen again (unclear: {one['detail']})" if one["state"] == UNCLEAR_SINCE else "not seen again (not re-run)"
    )


def _reliability(finding: dict[str, Any]) -> str:
    """``7/10 flaky, real 3/3``: in how many runs it showed, in a word where not in all, then under the real runner."""
    shown, runs = finding["reliability"]
    real = finding.get("real")
    under_real = f", real {real['shown']}/{real['runs']}" if real and real["runs"] else ""
    word = "" if shown == runs else " flaky" if shown else " not reproduced"
    return f"{shown}/{runs}{word}{under_real}" if runs else "–"


def campaign_headline(result: CampaignResult) -> str:
    """One line: what is new, out of how much, and why it ended early if it did."""
    if result.exit_code == COULD_NOT_RUN:
        return f"could not run: {result.reason}"
    new = sum(is_new_bug(finding) for finding in result.findings)
    found = {0: "nothing new", 1: "1 new finding"}.get(new, f"{new} new findings")
    line = f"{found} in {result.programs:,} programs, {result.steps:,} steps"
    if result.interrupted:
        line += " (interrupted)"
    return f"{line}: {result.reason}" if result.reason else line


def findings_table(findings: Sequence[dict[str, Any]]) -> Table:
    """New bugs first, then what is known, then what the harness lacks."""
    table = plain_table("", "fault", "signature", "pair", "step", "shows", "met")
    for finding in sorted(findings, key=lambda finding: (not is_new_bug(finding), finding["known"])):
        label = label_of(finding)
        table.add_row(
            Text(label, "bold red" if label == "new" else STYLES.get(label, "dim")),
            Text(_short(finding["title"])),
            Text(finding["signature"]),
            Text(finding["pair"]),
            Text(finding["mode"]),
            Text(_reliability(finding)),
            Text(f"{finding['count']:,}"),
        )
    return table


def replay_commands(result: CampaignResult, target: str) -> list[str]:
    """How to see each saved fault again."""
    return [shlex.join(["seamripper", "replay", str(script), "--target", target]) for script in result.scripts]


def replay_table(results: Sequence[ReplayResult]) -> Table:
    table = plain_table("repro", "target", "state", "shows", "")
    for result in results:
        cell = result.cell
        detail = result.finding.title if result.finding else cell.detail
        table.add_row(
            Text(result.path.name), Text(cell.target), state_text(cell.state), _shows(cell), Text(one_line(detail))
        )
    return table


def script_of(result: ShrinkResult) -> str:
    """The standalone script of what shrinking came to. Raises ScriptError where none can show it."""
    confirmed = result.confirmed
    if confirmed is None or confirmed.trace is None:
        raise ScriptError("it did not show again")
    provenance = Provenance(
        found_on=result.target,
        seen_on=(result.target,),
        shown=confirmed.shown,
        runs=confirmed.runs,
        command=shlex.join(["seamripper", "shrink", str(result.path), "--target", result.target]),
        versions=f"sglang {result.sglang_version}",
    )
    return write_script(confirmed.program, confirmed.finding, confirmed.trace, provenance)


def doctor_table(report: doctor.Report) -> Table:
    table = plain_table("", "", "")
    for what, state, detail in doctor.to_table_rows(report):
        table.add_row(Text(what), Text(state, STYLES.get(state, "")), Text(one_line(detail)))
    return table


def audit_table(report: AuditReport) -> Table:
    """The rows that matter most, worst first."""
    table = plain_table("", "wrapper", "name", "answer", "why", "read in")
    for row in report.rows[:AUDIT_ROWS_MAX]:
        places = [reader.place.rsplit("/", 1)[-1] for reader in row.readers]
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        table.add_row(
            Text("gap" if row.gap else "", "red"),
            Text(row.wrapper),
            Text(row.name),
            Text(row.answer, STYLES.get(row.answer, "")),
            Text(one_line(row.why)),
            Text(f"{places[0]}{more}" if places else "–", "dim"),
        )
    return table


def audit_headline(report: AuditReport) -> str:
    left = len(report.rows) - AUDIT_ROWS_MAX
    gaps = "1 gap" if report.gaps == 1 else f"{report.gaps} gaps"
    return f"{gaps}, {len(report.rows)} rows" + (f", {left} of them not shown (--json has all)" if left > 0 else "")


def bench_table(results: Sequence[Result]) -> Table:
    table = plain_table("", "", "place", "fault", "before", "after", "shown by", "s", "programs")
    for result in results:
        mutant = result.mutant
        table.add_row(
            Text(str(result.number)),
            Text(result.state, "green" if result.state == "detected" else "red"),
            Text(f"{mutant.file.rsplit('/', 1)[-1]}:{mutant.line}"),
            Text(mutant.operator),
            Text(_short(mutant.before, FAULT_COLUMNS)),
            Text(_short(mutant.after, FAULT_COLUMNS)),
            Text(result.signature or ", ".join(result.noticed) or "–"),
            Text(f"{result.seconds:.0f}"),
            Text(str(result.programs)),
        )
    return table


def bench_headline(results: Sequence[Result]) -> str:
    """How many were detected of those that still imported, and by which oracle."""
    tried = [result for result in results if result.state != "stillborn"]
    counts = by_oracle(results)
    oracles = ", ".join(f"{oracle} {count}" for oracle, count in counts.items())
    line = f"{sum(counts.values())} of {len(tried)} mutants detected" + (f" ({oracles})" if oracles else "")
    stillborn = len(results) - len(tried)
    return line + (f"; {stillborn} more did not import" if stillborn else "")


def state_text(state: str) -> Text:
    return Text().append(state, STYLES.get(state, ""))


def _shows(cell: Cell) -> Text:
    return Text(f"{cell.k}/{cell.n}" if cell.n else "–")


def plain_table(*columns: str) -> Table:
    """No box: a narrow terminal keeps its columns for words."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def one_line(text: str) -> str:
    return " ".join(text.split())


def _short(text: str, columns: int = TITLE_COLUMNS) -> str:
    line = one_line(text)
    return line if len(line) <= columns else line[: columns - 1] + "…"
