"""Writes the audit's checklist as one pytest file that an SGLang checkout can carry as its own."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from pprint import pformat

from fuzz.audit.rows import AuditReport, Check

TEMPLATE = Path(__file__).with_name("written_test.template")
CHECKS_MARK, WRAPPERS_MARK = "CHECKS: list[dict] = []", "WRAPPERS: dict[str, dict] = {}"
LINE_MAX = 110  # columns of the written file


def write_test(report: AuditReport, path: Path) -> None:
    """One test for each name and wrapper of `report.checks`; the file imports pytest, torch, sglang and stdlib only."""
    checks = [_compact(asdict(check)) for check in report.checks]
    used = {check.wrapper for check in report.checks}
    wrappers = {
        w.name: {"module": w.module, "slots": w.slots, "reads": w.reads} for w in report.wrappers if w.name in used
    }
    text = TEMPLATE.read_text(encoding="utf-8")
    text = text.replace(CHECKS_MARK, f"CHECKS: list[dict] = {_pretty(checks)}")
    text = text.replace(WRAPPERS_MARK, f"WRAPPERS: dict[str, dict] = {_pretty(wrappers)}")
    path.write_text(text, encoding="utf-8")


def _pretty(value: object) -> str:
    return pformat(value, width=LINE_MAX, sort_dicts=False)


def _compact(check: dict[str, object]) -> dict[str, object]:
    """Without the fields that stand at their defaults."""
    defaults = {f.name: f.default for f in fields(Check)}
    return {name: value for name, value in check.items() if value != defaults[name]}
