"""The tables, on small literal runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reports.load import Run, load_run
from reports.tables import (
    findings_table,
    first_seen_table,
    over_time_table,
    pair_mode_table,
    reason_table,
    throughput_table,
    verdict_table,
)
from tests.reports.sample import BUG, FINDING, GAP, OK, write_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return load_run(write_run(tmp_path, [OK, BUG, GAP], [FINDING]))


@pytest.fixture
def nothing(tmp_path: Path) -> Run:
    return load_run(tmp_path)


def test_findings_come_in_the_order_in_which_they_were_found(tmp_path: Path) -> None:
    early = {**FINDING, "signature": "numeric/nan/Kernel.out", "first_seconds": 3.5}
    table = findings_table(load_run(write_run(tmp_path, [], [FINDING, early])).findings)
    assert table["signature"].tolist() == ["numeric/nan/Kernel.out", "contract/AttributeError/Wrapper.field"]
    assert table["reliability"].tolist() == ["2/3", "2/3"]


def test_pair_mode_counts_each_verdict(run: Run) -> None:
    columns = ["pair", "mode", "ok", "bug", "unsupported", "stub_gap", "infra", "total"]
    assert pair_mode_table(run.steps)[columns].values.tolist() == [
        ["triton:fa3", "extend", 2, 0, 0, 0, 0, 2],
        ["triton:fa3", "decode", 3, 0, 0, 0, 0, 3],
        ["triton:fa3", "verify_chain_prefill", 0, 1, 0, 0, 0, 1],
        ["triton:torch_native", "draft_extend", 0, 0, 0, 1, 0, 1],
    ]


def test_pair_mode_share_is_of_the_pair(run: Run) -> None:
    assert pair_mode_table(run.steps)["share"].tolist() == pytest.approx([2 / 6, 3 / 6, 1 / 6, 1.0])


def test_verdicts_are_all_listed(run: Run) -> None:
    table = verdict_table(run.records)
    assert table[["verdict", "programs"]].values.tolist() == [
        ["ok", 1],
        ["bug", 1],
        ["unsupported", 0],
        ["stub_gap", 1],
        ["infra", 0],
    ]


def test_reasons_leave_out_ok_and_bug(run: Run) -> None:
    assert reason_table(run.records).values.tolist() == [["stub_gap", "FakeModelRunner lacks some_field", 1]]


def test_reasons_are_sorted_by_frequency(tmp_path: Path) -> None:
    rare = replace(GAP, reason="a rare one")
    table = reason_table(load_run(write_run(tmp_path, [rare, GAP, GAP], [])).records)
    assert table["reason"].tolist() == ["FakeModelRunner lacks some_field", "a rare one"]


def test_throughput_by_pair(run: Run) -> None:
    assert throughput_table(run.records, "pair").values.tolist() == [
        ["triton:fa3", 2, 6, 2.5, 0.8, 2.4],
        ["triton:torch_native", 1, 1, 1.5, pytest.approx(2 / 3), pytest.approx(2 / 3)],
    ]


def test_throughput_by_worker(run: Run) -> None:
    table = throughput_table(run.records, "worker")
    assert table[["worker", "programs", "steps"]].values.tolist() == [[0, 2, 6], [1, 1, 1]]


def test_no_time_spent_gives_no_rate(tmp_path: Path) -> None:
    table = throughput_table(load_run(write_run(tmp_path, [replace(OK, seconds=0.0)], [])).records, "pair")
    assert table["programs_per_second"].isna().tolist() == [True]


def test_over_time_in_four_spans(run: Run) -> None:
    # Programs end at 10, 20 and 40 s; the spans end at 10, 20, 30 and 40 s.
    table = over_time_table(run.records, bins=4)
    assert table["until_seconds"].tolist() == [10.0, 20.0, 30.0, 40.0]
    assert table["programs"].tolist() == [1, 2, 2, 3]
    assert table["steps"].tolist() == [4, 6, 6, 7]
    assert table["steps_per_second"].tolist() == pytest.approx([0.4, 0.2, 0.0, 0.1])


def test_first_seen_has_known_faults_and_none_of_the_harness(tmp_path: Path) -> None:
    known = {**FINDING, "signature": "numeric/nan/Kernel.out", "first_seconds": 3.5, "known": True}
    gap = {**FINDING, "signature": "contract/stub_gap/Runner.x", "verdict": "stub_gap"}
    table = first_seen_table(load_run(write_run(tmp_path, [], [FINDING, known, gap])).findings)
    assert table[["signature", "first_seconds", "first_programs", "count", "new"]].values.tolist() == [
        ["numeric/nan/Kernel.out", 3.5, 2, 4, False],
        ["contract/AttributeError/Wrapper.field", 20.0, 2, 4, True],
    ]


def test_no_records_give_empty_tables(nothing: Run) -> None:
    assert len(findings_table(nothing.findings)) == 0
    assert len(pair_mode_table(nothing.steps)) == 0
    assert len(reason_table(nothing.records)) == 0
    assert len(throughput_table(nothing.records, "pair")) == 0
    assert len(over_time_table(nothing.records)) == 0
    assert len(first_seen_table(nothing.findings)) == 0
    assert verdict_table(nothing.records)["programs"].tolist() == [0, 0, 0, 0, 0]
