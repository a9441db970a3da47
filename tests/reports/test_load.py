"""Loading: dtypes, several workers, and lines that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reports.load import FINDING_DTYPES, RECORD_DTYPES, STEP_DTYPES, load_findings, load_records, load_run, load_steps
from tests.reports.sample import BUG, FINDING, GAP, OK, write_run


def test_records_of_all_workers_are_read(tmp_path: Path) -> None:
    records = load_records(write_run(tmp_path, [OK, BUG, GAP], []))
    assert records["program"].tolist() == ["00000000000000aa", "00000000000000bb", "00000000000000cc"]
    assert records["pair"].tolist() == ["triton:fa3", "triton:fa3", "triton:torch_native"]
    assert records["steps"].tolist() == [4, 2, 1]


def test_a_single_records_file_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text(OK.to_line() + "\n")
    assert len(load_records(tmp_path)) == 1


def test_time_is_utc(tmp_path: Path) -> None:
    records = load_records(write_run(tmp_path, [OK], []))
    assert records["at"].iloc[0].isoformat() == "2027-01-15T08:00:10+00:00"


@pytest.mark.parametrize("filled", [False, True])
def test_dtypes_are_the_same_for_empty_and_filled_frames(tmp_path: Path, filled: bool) -> None:
    if filled:
        write_run(tmp_path, [OK, BUG], [FINDING])
    run = load_run(tmp_path)
    for frame, dtypes in ((run.records, RECORD_DTYPES), (run.steps, STEP_DTYPES), (run.findings, FINDING_DTYPES)):
        assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == {
            name: str(dtype) for name, dtype in dtypes.items()
        }
    assert str(run.records["at"].dtype) == "datetime64[ns, UTC]"
    assert str(run.records["verdict"].dtype) == "category"


def test_steps_are_added_up_per_pair_mode_and_verdict(tmp_path: Path) -> None:
    steps = load_steps(write_run(tmp_path, [BUG, BUG], []))
    assert steps[["pair", "mode", "verdict", "count"]].values.tolist() == [
        ["triton:fa3", "extend", "ok", 2],
        ["triton:fa3", "verify_chain_prefill", "bug", 2],
    ]


def test_a_finding_is_split_into_its_parts(tmp_path: Path) -> None:
    row = load_findings(write_run(tmp_path, [], [FINDING])).iloc[0]
    assert (row["oracle"], row["kind"], row["place"]) == ("contract", "AttributeError", "Wrapper.field")
    assert (row["shown"], row["runs"]) == (2, 3)


@pytest.mark.parametrize(
    "line",
    [
        OK.to_line()[:40],
        "[]",
        '{"version":99}',
        "\x00\x00\x00",
        OK.to_line().replace('"worker":0', '"worker":"zero"'),
        OK.to_line().replace('"verdict":"ok"', '"verdict":"fine"'),
        OK.to_line().replace('"at":1800000010.0', '"at":1e99'),
        OK.to_line().replace('"at":1800000010.0', '"at":NaN'),
        OK.to_line().replace('["extend","ok",1]', '["extend","fine",1]'),
    ],
)
def test_a_broken_record_line_is_listed_and_the_rest_is_read(tmp_path: Path, line: str) -> None:
    (tmp_path / "records-0.jsonl").write_text(f"{OK.to_line()}\n{line}\n{BUG.to_line()}\n")
    run = load_run(tmp_path)
    assert len(run.records) == 2
    assert [(broken.file, broken.line) for broken in run.broken] == [("records-0.jsonl", 2)]


def test_half_a_character_at_the_end_is_one_broken_line(tmp_path: Path) -> None:
    (tmp_path / "records-0.jsonl").write_bytes(OK.to_line().encode() + b'\n{"title":"\xe2\x82')
    run = load_run(tmp_path)
    assert (len(run.records), len(run.broken)) == (1, 1)


@pytest.mark.parametrize("field", ["signature", "reliability", "verdict", "count", "title"])
def test_a_finding_that_lacks_a_field_is_a_broken_line(tmp_path: Path, field: str) -> None:
    lacking = {name: value for name, value in FINDING.items() if name != field}
    (tmp_path / "findings.jsonl").write_text(json.dumps(lacking) + "\n" + json.dumps(FINDING) + "\n")
    run = load_run(tmp_path)
    assert len(run.findings) == 1
    assert [(broken.file, broken.line) for broken in run.broken] == [("findings.jsonl", 1)]


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="expected the --out folder of a run"):
        load_run(tmp_path / "absent")


def test_run_json_says_what_the_records_do_not(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"title": "a night", "command": "seamripper run"}')
    assert load_run(tmp_path).about == {"title": "a night", "command": "seamripper run"}


def test_a_broken_run_json_is_a_broken_line(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"title": 3}')
    run = load_run(tmp_path)
    assert run.about == {}
    assert [broken.file for broken in run.broken] == ["run.json"]
