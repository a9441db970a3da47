"""Known bugs that the audit lists, told by two audits of toy releases that are handed in."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz import audited
from fuzz.audit import AuditReport, Row
from fuzz.audited import Audits
from fuzz.known_bugs import KnownBug
from tests.fuzz.conftest import MakeTarget

LISTED = Row("Wrapper", "width", "missing", (), (), "crash", 0.9, "read without a guard: AttributeError", gap=True)
BELOW = Row("Wrapper", "width", "missing", (), (), "crash", 0.1, "read without a guard: AttributeError", gap=False)
OTHER = Row("Other", "width", "missing", (), (), "crash", 0.9, "read without a guard: AttributeError", gap=True)


def look(
    monkeypatch: pytest.MonkeyPatch, make_target: MakeTarget, present: tuple[Row, ...], fixed: tuple[Row, ...]
) -> tuple[str, str, str]:
    """(state, signature, detail) of a bug whose match names Wrapper.width."""
    here, there = make_target(name="present"), make_target(name="fixed")
    reports = {here: AuditReport(present, (), ()), there: AuditReport(fixed, (), ())}
    monkeypatch.setattr(audited, "audit", lambda folder: reports[folder])
    bug = KnownBug("A1", "t", "r", f"path:{here}", f"path:{there}", r"^Wrapper\.width is missing", "audit")
    result = Audits().look(bug)
    return result.state, result.signature, result.detail


def test_a_gap_on_present_alone_is_detected(monkeypatch: pytest.MonkeyPatch, make_target: MakeTarget) -> None:
    found = look(monkeypatch, make_target, (OTHER, LISTED), (OTHER,))
    assert found == ("detected", "audit/missing/Wrapper.width", "row 2")


def test_a_gap_on_both_is_not(monkeypatch: pytest.MonkeyPatch, make_target: MakeTarget) -> None:
    state, _, detail = look(monkeypatch, make_target, (LISTED,), (LISTED,))
    assert state == "both"
    assert detail.endswith("has it, too: Wrapper.width is missing: read without a guard: AttributeError")


def test_a_row_that_nobody_is_told_of_does_not_count(monkeypatch: pytest.MonkeyPatch, make_target: MakeTarget) -> None:
    assert look(monkeypatch, make_target, (BELOW,), ()) == ("missed", "", "")


def test_a_release_that_cannot_be_had_leaves_it_unclear(tmp_path: Path) -> None:
    bug = KnownBug("A1", "t", "r", f"path:{tmp_path}/none", "pypi:1.0", "x", "audit")
    result = Audits().look(bug)
    expected = f"target 'path:{tmp_path}/none': {tmp_path}/none is no folder; expected one that holds sglang/"
    assert (result.state, result.detail) == ("unclear", expected)


def test_a_file_is_saved_and_run_on_both(
    monkeypatch: pytest.MonkeyPatch, make_target: MakeTarget, tmp_path: Path
) -> None:
    here, there = make_target(name="present"), make_target(name="fixed")
    reports = {here: AuditReport((LISTED,), (), ()), there: AuditReport((), (), ())}
    monkeypatch.setattr(audited, "audit", lambda folder: reports[folder])
    asked: list[tuple[Path, str]] = []

    def exit_status(script: Path, target: str, python: str) -> int:
        asked.append((script, target))
        return 1 if target == f"path:{here}" else 0

    monkeypatch.setattr(audited, "exit_status", exit_status)
    bug = KnownBug("A1", "t", "r", f"path:{here}", f"path:{there}", r"^Wrapper\.width is missing", "audit")
    result = Audits(tmp_path).look(bug)
    (saved,) = tmp_path.glob("A1-audit-missing-Wrapper_width-*.py")
    assert (result.script, result.exits) == (str(saved), (1, 0))
    assert asked == [(saved, f"path:{here}"), (saved, f"path:{there}")]
