"""The table of cells: what each of them says, and why."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fuzz.cells import CELLS
from fuzz.sealed import sealed
from reports.cells import cell_table, legend, rows_of
from reports.load import load_run
from reports.render import write_reports
from tests.reports.sample import BUG, GAP, OK, write_run

OPEN = (
    ("triton:fa3", "verify_tree_prefill", "unsupported", "no trees"),
    ("triton:fa3", "verify_tree_decode", "unsupported", "no trees"),
    ("triton:fa3", "draft_extend", "behind", "Wrapper lacks field"),
    ("triton:fa3", "mixed", "", ""),
    ("fa3:mute", "extend", "unsupported", "no mute here"),
)


def table_of(folder: Path) -> pd.DataFrame:
    write_run(folder, [OK, BUG, GAP], [])
    lines = [sealed(dict(zip(("pair", "mode", "state", "reason"), one, strict=True))) for one in OPEN]
    (folder / "cells.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = load_run(folder)
    return cell_table(run.steps, run.cells)


def test_every_cell_says_what_happened(tmp_path: Path) -> None:
    rows = rows_of(table_of(tmp_path))
    assert {mode: cell["text"] for mode, cell in rows["triton:fa3"].items() if cell["text"] != "not run"} == {
        "extend": "ok 2",
        "decode": "ok 3",
        "verify_chain_prefill": "bug 1 of 1",
        "verify_tree_prefill": "unsupported",
        "verify_tree_decode": "unsupported",
    }
    assert rows["triton:torch_native"]["draft_extend"]["text"] == "stub_gap 1 of 1"
    assert rows["fa3:mute"]["extend"]["text"] == "unsupported"


def test_no_cell_is_missing(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    assert sorted(set(table["pair"])) == ["fa3:mute", "triton:fa3", "triton:torch_native"]
    assert len(table) == 3 * len(CELLS)
    assert not (table["text"] == "").any()


def test_one_reason_has_one_number(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    assert legend(table) == {"no mute here": 1, "no trees": 2, "behind a fault: Wrapper lacks field": 3}
    row = rows_of(table)["triton:fa3"]
    assert [row[mode]["number"] for mode in ("verify_tree_prefill", "verify_tree_decode", "draft_extend", "mixed")] == [
        2,
        2,
        3,
        0,
    ]


def test_both_reports_show_the_reasons(tmp_path: Path) -> None:
    table_of(tmp_path)
    write_reports(tmp_path)
    summary, page = (tmp_path / "summary.md").read_text(), (tmp_path / "report.html").read_text()
    assert "| `fa3:mute` | unsupported (1) | not run |" in summary
    assert "\n1. no mute here\n2. no trees\n3. behind a fault: Wrapper lacks field\n" in summary
    assert '<li value="2">no trees</li>' in page
    assert "unsupported<small>(1)</small>" in page


def test_no_records_give_an_empty_table(tmp_path: Path) -> None:
    run = load_run(tmp_path)
    assert len(cell_table(run.steps, run.cells)) == 0
