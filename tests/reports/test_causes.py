"""Which finding follows from which."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.finding import ANSWERED
from reports.causes import follows_of
from reports.load import load_run
from reports.morning import overview_table
from reports.render import write_reports
from tests.reports.sample import BUG, FINDING, write_run

BREACH = "bounds/contract_breach/attention.page_table"
HOLE, WRITE = "bounds/hole/kernel.loc", "bounds/row_write/kernel.kv"
STORED, NUMBER, OTHER = "state/kv_not_written/B.decode", "numeric/wrong_output/B.decode", "numeric/nan/C.decode"
THIRD = "numeric/wrong_shape/D.decode"


def run(
    folder: Path,
    *told: tuple[str, list[str]],
    runs: tuple[int, int] = (10, 10),
    evidence: dict[str, str] | None = None,
) -> Path:
    """Findings, in the order in which they came, each with what its program shows beside; ``evidence`` is the breach's."""
    findings = [
        {
            **FINDING,
            "signature": name,
            "title": name,
            "beside": beside,
            "first_seconds": 20.0 + place,
            "reliability": list(runs),
            "evidence": (evidence or {}) if name == BREACH else {},
        }
        for place, (name, beside) in enumerate(told)
    ]
    return write_run(folder, [BUG], findings)


@pytest.mark.parametrize(
    ("told", "follows"),
    [
        ([(HOLE, []), (NUMBER, [])], ["", ""]),
        ([(HOLE, [NUMBER]), (NUMBER, [HOLE])], ["", HOLE]),
        ([(NUMBER, []), (HOLE, [NUMBER])], ["", ""]),  # a wrong number makes no kernel go astray, and shows by itself
        ([(WRITE, [HOLE]), (HOLE, [WRITE])], ["", WRITE]),  # each with the other: one fault, by what was seen first
        ([(NUMBER, [OTHER]), (OTHER, [])], [OTHER, ""]),  # never by itself, as the other is
        ([(NUMBER, [OTHER]), (OTHER, [THIRD]), (THIRD, [NUMBER])], ["", NUMBER, NUMBER]),  # a ring is one fault
        # two that are one fault follow together from what one of them never shows without
        ([(OTHER, [NUMBER]), (NUMBER, [OTHER, THIRD]), (THIRD, [])], [THIRD, THIRD, ""]),
        ([(NUMBER, [STORED, HOLE]), (STORED, [HOLE]), (HOLE, [])], [HOLE, HOLE, ""]),
        ([(NUMBER, [STORED]), (STORED, [HOLE]), (HOLE, [])], [HOLE, HOLE, ""]),  # by way of another
        ([(NUMBER, ["state/never/noted"])], [""]),
        ([(BREACH, [HOLE]), (HOLE, [])], [HOLE, ""]),  # what went wrong in a kernel comes before the next one's call
    ],
)
def test_a_finding_follows_from_what_its_smallest_program_shows_too(
    tmp_path: Path, told: list[tuple[str, list[str]]], follows: list[str]
) -> None:
    assert follows_of(load_run(run(tmp_path, *told)).findings).tolist() == follows


@pytest.mark.parametrize(("evidence", "follows"), [({}, [BREACH, ""]), ({ANSWERED: "as told"}, ["", ""])])
def test_from_a_breach_that_was_answered_all_the_same_nothing_follows(
    tmp_path: Path, evidence: dict[str, str], follows: list[str]
) -> None:
    folder = run(tmp_path, (NUMBER, [BREACH]), (BREACH, [NUMBER]), evidence=evidence)
    assert follows_of(load_run(folder).findings).tolist() == follows


def test_a_breach_that_never_shows_by_itself_follows_from_one_that_was_answered(tmp_path: Path) -> None:
    other = "bounds/contract_breach/other_attention.page_table"
    folder = run(tmp_path, (BREACH, []), (other, [BREACH]), evidence={ANSWERED: "as told"})
    assert follows_of(load_run(folder).findings).tolist() == ["", BREACH]


def test_a_program_that_was_not_made_small_says_nothing_of_what_looks_alike(tmp_path: Path) -> None:
    findings = load_run(run(tmp_path, (NUMBER, [OTHER]), (OTHER, []), runs=(1, 1))).findings
    assert follows_of(findings).tolist() == ["", ""]


def test_a_program_that_was_made_small_though_time_was_up_before_the_last_run_does(tmp_path: Path) -> None:
    findings = load_run(run(tmp_path, (NUMBER, [OTHER]), (OTHER, []), runs=(7, 7))).findings
    assert follows_of(findings).tolist() == [OTHER, ""]


def test_that_of_the_one_that_shows_by_itself_need_not_be_small(tmp_path: Path) -> None:
    folder = run(tmp_path, (NUMBER, [OTHER]), (OTHER, []))
    findings = load_run(folder).findings
    findings.loc[findings["signature"] == OTHER, "runs"] = 1
    assert follows_of(findings).tolist() == [OTHER, ""]


def test_the_reports_say_what_follows_from_what(tmp_path: Path) -> None:
    folder = run(tmp_path, (NUMBER, [HOLE]), (HOLE, []), (OTHER, []), (STORED, []))
    write_reports(folder)
    page, summary = (folder / "report.html").read_text(), (folder / "summary.md").read_text()
    assert ["new", "follow from another", 1] in overview_table(load_run(folder)).to_numpy().tolist()
    assert "**4** new (1 follow from another)" in summary
    assert f"- follows, it seems, from 2: its program also shows `{HOLE}`\n" in summary
    assert page.count('<span class="tag">follows 2</span>') == 1
    assert 'Follows, it seems, from <a href="#finding-2">2</a>' in page
