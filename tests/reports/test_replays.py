"""Whether a finding shows each time its program is run again, and what is said where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sample import BUG, FINDING, write_run

from reports import findings_table, load_findings, replay_of, write_reports
from reports.replays import doubt

CASES: dict[str, tuple[list[int], str, str]] = {
    "every time": ([10, 10], "", ""),
    "flaky": ([7, 10], "clean in 3", "flaky: shows in 7 of 10 runs; the others: clean in 3"),
    "not reproduced": (
        [0, 10],
        "clean in 10",
        (
            "not reproduced: none of 10 runs in fresh processes shows it (clean in 10); what ran before it in its worker "
            "made it, or chance"
        ),
    ),
    "not run again": ([0, 0], "", "not run again: the run ended, or lost its worker, before that"),
}


def findings(folder: Path, **fields: Any) -> Any:
    return load_findings(write_run(folder, [BUG], [{**FINDING, **fields}]))


@pytest.mark.parametrize("replay", CASES)
def test_replays_are_told_in_words(tmp_path: Path, replay: str) -> None:
    reliability, otherwise, text = CASES[replay]
    found = findings(tmp_path, reliability=reliability, otherwise=otherwise)
    assert replay_of(found).tolist() == [replay]
    assert findings_table(found)["replay"].tolist() == [replay]
    assert doubt(found.to_dict("records")[0]) == text


def test_run_of_before_there_was_a_why_has_none(tmp_path: Path) -> None:
    (row,) = findings(tmp_path, reliability=[7, 10]).to_dict("records")
    assert doubt(row) == "flaky: shows in 7 of 10 runs"


@pytest.mark.parametrize("replay", ["flaky", "not reproduced", "not run again"])
def test_doubt_stands_in_every_report(tmp_path: Path, replay: str) -> None:
    reliability, otherwise, text = CASES[replay]
    write_reports(write_run(tmp_path, [BUG], [{**FINDING, "reliability": reliability, "otherwise": otherwise}]))
    assert f"- {text}; first seen after 20 s" in (tmp_path / "summary.md").read_text()
    page = (tmp_path / "report.html").read_text()
    assert f'<span class="tag">{replay}</span>' in page
    assert f'<p class="doubt">{text[0].upper()}{text[1:]}.</p>' in page
    assert f"\n\n{text}\nscript: " in (tmp_path / "junit.xml").read_text()


def test_what_shows_every_time_has_no_tag(tmp_path: Path) -> None:
    write_reports(write_run(tmp_path, [BUG], [{**FINDING, "reliability": [10, 10]}]))
    assert '<span class="tag">' not in (tmp_path / "report.html").read_text()
    assert "\n\nshows in every run\nscript: " in (tmp_path / "junit.xml").read_text()
