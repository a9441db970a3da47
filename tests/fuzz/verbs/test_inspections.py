"""`seamripper doctor`, `audit` and `report`: what they print, write and exit with."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.__main__ import main
from fuzz.audit import AuditReport, Reader
from fuzz.audit import Row as AuditRow
from fuzz.doctor import Backend, Part, Report
from fuzz.verbs import inspections
from tests.fuzz.conftest import MakeTarget
from tests.fuzz.mistake import mistake

SURVEY = Report(
    target="installed",
    python="python",
    versions={"sglang": "9.1"},
    parts=(Part("sgl_kernel", "stood in", "not installed"),),
    backends=(Backend("triton", ""), Backend("fa3", "no kernel")),
    error="",
    seconds=1.0,
)


@pytest.mark.parametrize(("survey", "status"), [(SURVEY, 0), (replace(SURVEY, error="no sglang"), 3)])
def test_doctor_exits_by_what_can_run(monkeypatch: pytest.MonkeyPatch, survey: Report, status: int) -> None:
    monkeypatch.setattr(inspections, "diagnose", lambda target, python: survey)
    assert main(["doctor"]) == status


def test_doctor_lists_what_is_stood_in(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(inspections, "diagnose", lambda target, python: SURVEY)
    main(["doctor"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["sgl_kernel", "stood", "in", "not", "installed"] in rows
    assert ["backend", "fa3", "cannot", "be", "built", "no", "kernel"] in rows


GAP_ROW = AuditRow(
    "HybridAttnBackend", "field", "missing", (), (Reader("eagle.py:build", "plain"),), "crash", 9.0, "no", True
)
FINE_ROW = replace(GAP_ROW, name="other", answer="base", gap=False)


@pytest.mark.parametrize(("rows", "status"), [((GAP_ROW, FINE_ROW), 1), ((FINE_ROW,), 0)])
def test_audit_exits_1_on_a_gap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_target: MakeTarget, rows: tuple[AuditRow, ...], status: int
) -> None:
    monkeypatch.setattr(inspections, "read_audit", lambda folder, wrappers: AuditReport(rows, (), ()))
    assert main(["audit", "--target", f"path:{make_target()}"]) == status


def test_audit_prints_ranked_rows(
    monkeypatch: pytest.MonkeyPatch, make_target: MakeTarget, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inspections, "read_audit", lambda folder, wrappers: AuditReport((GAP_ROW,) * 25, (), ()))
    main(["audit", "--target", f"path:{make_target()}"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["gap", "HybridAttnBackend", "field", "missing", "no", "eagle.py:build"]
    assert len(lines) == 22
    assert lines[-1] == "25 gaps, 25 rows, 5 of them not shown (--json has all)"


def test_audit_hands_its_wrappers_on(monkeypatch: pytest.MonkeyPatch, make_target: MakeTarget) -> None:
    seen: list[Any] = []

    def read(folder: Path, wrappers: tuple[str, ...]) -> AuditReport:
        seen.extend([folder, wrappers])
        return AuditReport((), (), ())

    monkeypatch.setattr(inspections, "read_audit", read)
    folder = make_target()
    main(["audit", "--target", f"path:{folder}", "--wrapper", "A", "B"])
    assert seen == [folder, ("A", "B")]


def test_audit_saves_its_gaps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_target: MakeTarget) -> None:
    monkeypatch.setattr(inspections, "read_audit", lambda folder, wrappers: AuditReport((GAP_ROW, FINE_ROW), (), ()))
    main(["audit", "--target", f"path:{make_target()}", "--repros", str(tmp_path / "new" / "repros")])
    (saved,) = (tmp_path / "new" / "repros").iterdir()
    assert saved.name.startswith("audit-missing-HybridAttnBackend_field-")


def test_an_unknown_wrapper_is_one_line(
    monkeypatch: pytest.MonkeyPatch, make_target: MakeTarget, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(folder: Path, wrappers: tuple[str, ...]) -> AuditReport:
        raise ValueError("no wrapper named X in this release; it has A, B")

    monkeypatch.setattr(inspections, "read_audit", refuse)
    line = mistake(capsys, "audit", "--target", f"path:{make_target()}", "--wrapper", "X")
    assert line == "no wrapper named X in this release; it has A, B; see seamripper audit --help"


def test_report_without_pandas_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "reports", None)
    assert main(["report", str(tmp_path)]) == 3
    assert capsys.readouterr().err.endswith("; pip install 'seamripper[report]'\n")


def test_report_writes_all_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 0
    names = [Path(line).name for line in capsys.readouterr().out.splitlines()]
    assert names == ["summary.md", "findings.csv", "pair_mode.csv", "report.html", "junit.xml"]
