"""What is new, known and fixed since the night before: in tables, Markdown, the page and JUnit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from sample import BUG, FINDING, write_run

from fuzz.sealed import sealed
from reports import findings_table, load_run, overview_table, since_table, write_reports

THEN: dict[str, Any] = {"title": "Wrapper lacks field", "pair": "triton:fa3", "script": "", "shown": 10, "runs": 10}
NOW: dict[str, Any] = {**THEN, "count": 0, "reruns": 0, "detail": ""}
MET = {**NOW, "signature": FINDING["signature"], "state": "met", "count": 1234}
FIXED = {**NOW, "signature": "numeric/nan/a", "state": "fixed", "reruns": 3}
SHOWS = {**NOW, "signature": "numeric/nan/b", "state": "shows", "reruns": 2}
UNCLEAR = {**NOW, "signature": "numeric/nan/c", "state": "unclear", "reruns": 1, "detail": "infra: a | b"}
NOT_RUN = {**NOW, "signature": "numeric/nan/d", "state": "not run again", "shown": 0, "runs": 0}
SINCE = [MET, NOT_RUN, UNCLEAR, SHOWS, FIXED]


@pytest.fixture
def night(tmp_path: Path) -> Path:
    """A run after another: a fault found before and always shown, a flaky one and a known one."""
    flaky = {**FINDING, "signature": "state/kv/g", "reliability": [7, 10]}
    known = {**FINDING, "signature": "state/kv/h", "known": True}
    folder = write_run(tmp_path, [BUG], [{**FINDING, "reliability": [10, 10]}, flaky, known])
    (folder / "since.jsonl").write_text("".join(sealed(one) + "\n" for one in SINCE))
    (folder / "run.json").write_text(json.dumps({"title": "night", "since": "nights/2026-11-29"}))
    return folder


def test_overview_counts_each_kind(night: Path) -> None:
    assert overview_table(load_run(night)).to_numpy().tolist() == [
        ["", "new", 2],
        ["new", "follow from another", 0],
        ["new", "flaky", 1],
        ["new", "not reproduced", 0],
        ["new", "not run again", 0],
        ["new", "found before", 1],
        ["", "known", 1],
        ["", "fixed since", 1],
        ["", "not met, still showing", 1],
        ["", "not seen again", 2],
    ]


def test_overview_of_an_empty_folder_is_all_nought(tmp_path: Path) -> None:
    assert overview_table(load_run(tmp_path))["count"].tolist() == [0] * 10


def test_fixed_comes_first_and_says_what_it_rests_on(night: Path) -> None:
    table = since_table(load_run(night).since)
    assert table[["signature", "words", "told"]].to_numpy().tolist() == [
        ["numeric/nan/a", "fixed", "clean in 3 of 3 runs of its program"],
        ["numeric/nan/b", "not met, still showing", "in run 2 of its program"],
        ["numeric/nan/c", "not seen again (unclear)", "infra: a | b"],
        ["numeric/nan/d", "not seen again (not re-run)", ""],
        ["contract/AttributeError/Wrapper.field", "met again", "1,234 times"],
    ]


def test_findings_table_says_what_the_earlier_run_had_found(night: Path) -> None:
    run = load_run(night)
    assert findings_table(run.findings, run.since)["earlier"].tolist() == [True, False, False]
    assert findings_table(run.findings)["earlier"].tolist() == [False, False, False]


def test_summary_says_it_first(night: Path) -> None:
    write_reports(night)
    lines = (night / "summary.md").read_text().splitlines()
    assert lines[4] == (
        "**2** new (1 flaky, 1 found before) · **1** known · **1** fixed since · **1** not met, still showing · "
        "**2** not seen again"
    )
    assert "## Since `nights/2026-11-29`" in lines
    assert (
        "| `numeric/nan/a` | **fixed** | `triton:fa3` | 10 of 10 runs | clean in 3 of 3 runs of its program |" in lines
    )
    assert r"| `numeric/nan/c` | not seen again (unclear) | `triton:fa3` | 10 of 10 runs | infra: a \| b |" in lines
    assert "| `numeric/nan/d` | not seen again (not re-run) | `triton:fa3` | not run again |  |" in lines


def test_page_says_it_first(night: Path) -> None:
    write_reports(night)
    page = (night / "report.html").read_text()
    assert "<li><strong>2</strong> new (1 flaky, 1 found before)</li>\n<li><strong>1</strong> known</li>" in page
    assert '<td><b class="fixed">fixed</b></td>' in page
    assert page.count('<span class="tag">found before</span>') == 1


def test_run_without_an_earlier_one_says_nothing_of_it(tmp_path: Path) -> None:
    write_reports(write_run(tmp_path, [BUG], [{**FINDING, "reliability": [10, 10]}]))
    summary, page = (tmp_path / "summary.md").read_text(), (tmp_path / "report.html").read_text()
    assert summary.splitlines()[4] == "**1** new · **0** known"
    assert "Since" not in summary + page


def test_night_in_which_nothing_was_fixed_says_so(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [BUG], [])
    (folder / "run.json").write_text(json.dumps({"since": "nights/1"}))
    write_reports(folder)
    assert (folder / "summary.md").read_text().splitlines()[4] == "**0** new · **0** known · **0** fixed since"


def test_junit_passes_what_is_fixed_and_skips_what_is_not_known(night: Path) -> None:
    write_reports(night)
    root = ElementTree.parse(night / "junit.xml").getroot()
    (suite,) = [suite for suite in root if suite.get("name") == "since"]
    said = {case.get("name"): [one.get("message") for one in case] for case in suite}
    assert said == {
        "numeric/nan/a": [],
        "numeric/nan/b": ["not met, still showing: in run 2 of its program"],
        "numeric/nan/c": ["not seen again (unclear): infra: a | b"],
        "numeric/nan/d": ["not seen again (not re-run)"],
    }
    assert (root.get("failures"), root.get("skipped")) == ("2", "3")


def test_broken_line_is_listed(night: Path) -> None:
    (night / "since.jsonl").write_text('{"signature": "half')
    run = load_run(night)
    assert (run.since.empty, [line.file for line in run.broken]) == (True, ["since.jsonl"])
