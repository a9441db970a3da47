"""Known faults, and what the real runner says, as the reports tell them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sample import BUG, FINDING, write_run

from reports import write_reports
from reports.load import load_run


def standing(state: str, **fields: Any) -> dict[str, Any]:
    given = {"signature": f"contract/KeyError/{state}", "script": "known/a.py", "reason": "see issue 1", "count": 0}
    return {**given, "state": state, "detail": "", "crc": "0", **fields}


KNOWN = [standing("met", count=1234), standing("gone"), standing("unclear", detail="infra: a | b")]


def write_known(folder: Path) -> Path:
    folder = write_run(folder, [BUG], [FINDING])
    (folder / "known.jsonl").write_text("".join(json.dumps(one) + "\n" for one in KNOWN))
    return folder


def test_known_faults_are_a_frame(tmp_path: Path) -> None:
    known = load_run(write_known(tmp_path)).known
    assert known["state"].tolist() == ["met", "gone", "unclear"]
    assert known["count"].tolist() == [1234, 0, 0]


def test_broken_line_is_listed(tmp_path: Path) -> None:
    folder = write_known(tmp_path)
    (folder / "known.jsonl").write_text('{"signature": "half')
    run = load_run(folder)
    assert (run.known.empty, [line.file for line in run.broken]) == (True, ["known.jsonl"])


def test_what_no_longer_shows_stands_out(tmp_path: Path) -> None:
    folder = write_known(tmp_path)
    write_reports(folder)
    summary, page = (folder / "summary.md").read_text(), (folder / "report.html").read_text()
    assert "| `contract/KeyError/gone` | **gone** | 0 | see issue 1 |  |" in summary
    assert "| `contract/KeyError/met` | met | 1,234 | see issue 1 |  |" in summary
    assert r"| `contract/KeyError/unclear` | unclear | 0 | see issue 1 | infra: a \| b |" in summary
    assert "<td><b>gone</b></td>" in page


def test_run_without_known_faults_says_nothing_of_them(tmp_path: Path) -> None:
    write_reports(write_run(tmp_path, [BUG], [FINDING]))
    assert "Known faults" not in (tmp_path / "summary.md").read_text() + (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("real", "text"),
    [
        ({"shown": 2, "runs": 3, "why_not": ""}, "2 of 3 runs"),
        ({"shown": 0, "runs": 0, "why_not": "unsupported: no window"}, "cannot be tried (unsupported: no window)"),
    ],
)
def test_real_runner_has_its_word(tmp_path: Path, real: dict[str, Any], text: str) -> None:
    write_reports(write_run(tmp_path, [BUG], [{**FINDING, "real": real}]))
    assert f"; under the real runner: {text}; first seen" in (tmp_path / "summary.md").read_text()
    assert f"<div><dt>real runner</dt><dd>{text}</dd></div>" in (tmp_path / "report.html").read_text()
