"""Shards of a campaign, each run as a campaign, and what they come to together: no more and no less than undivided."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign import CampaignError, CampaignOptions, CampaignResult, run_campaign
from fuzz.cells import Cell
from fuzz.gaps import read_cells, write_cells
from fuzz.known import read_known
from fuzz.merge import merge
from fuzz.recheck import Standing, write_standings
from tests.fuzz.campaign_log import FAULTS, FAULTY, Log, campaign, findings, records, write_target
from tests.fuzz.test_known import write

PROGRAMS = 150


def dealt(whole: CampaignOptions, shards: int) -> list[CampaignOptions]:
    one = replace(whole, shards=shards)
    return [replace(one, shard=number, out=whole.out / "shards" / str(number)) for number in range(shards)]


def put_together(whole: CampaignOptions, parts: list[CampaignOptions], log: Log) -> CampaignResult:
    known = read_known(whole.known) if whole.known is not None else {}
    tally, stand = merge(whole, [part.out for part in parts], known, log.note)
    return tally.result(whole, stand)


Divided = tuple[CampaignOptions, list[CampaignOptions], CampaignResult]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> CampaignOptions:
    """A campaign of which three shards have run."""
    folder = tmp_path_factory.mktemp("divided")
    whole = campaign(folder, write_target(folder / "target", FAULTY), programs=PROGRAMS)
    for part in dealt(whole, 3):
        run_campaign(part, Log())
    return whole


@pytest.fixture
def divided(ran: CampaignOptions, tmp_path: Path) -> Divided:
    """A copy of it, put together."""
    whole = replace(ran, out=tmp_path / "out")
    shutil.copytree(ran.out, whole.out)
    parts = dealt(whole, 3)
    return whole, parts, put_together(whole, parts, Log())


def test_shards_run_the_programs_of_the_campaign_each_once_and_find_what_it_finds(
    divided: Divided, tmp_path: Path
) -> None:
    whole, parts, result = divided
    plain = replace(whole, out=tmp_path / "plain", repros=tmp_path / "plain-repros")
    undivided = run_campaign(plain, Log())

    def programs(out: Path) -> list[tuple[int, str, str, str]]:
        return sorted((one.seed, one.program, one.verdict, one.signature) for one in records(out))

    assert [sorted(one.seed for one in records(part.out))[:3] for part in parts] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert programs(whole.out) == programs(plain.out)
    assert 3 <= len({entry["signature"] for entry in findings(whole.out)} & FAULTS) == len(findings(whole.out))
    told = [{entry["signature"]: entry["count"] for entry in findings(out)} for out in (whole.out, plain.out)]
    assert told[0] == told[1]
    assert (result.exit_code, result.programs, result.steps) == (1, PROGRAMS, undivided.steps)
    assert {path.name for path in result.scripts} == {path.name for path in undivided.scripts}


def test_a_finding_of_several_shards_is_one_and_its_script_shows_its_program(divided: Divided) -> None:
    whole, parts, _ = divided
    found = [entry["signature"] for part in parts for entry in findings(part.out)]
    entries = findings(whole.out)
    assert len(found) > len(entries) == len(set(found))
    assert all(entry["reliability"] == [10, 10] and entry["examined"] for entry in entries)
    assert len(list(whole.repros.iterdir())) == len(entries)


def test_the_folder_is_that_of_a_campaign_which_goes_on_undivided(divided: Divided) -> None:
    whole, _, _ = divided
    log = Log()
    result = run_campaign(replace(whole, programs=PROGRAMS + 2), log)
    assert [record.seed for record in log.records] == [PROGRAMS, PROGRAMS + 1]
    assert (result.programs, log.notes) == (
        PROGRAMS + 2,
        [f"going on in {whole.out}, where {PROGRAMS} programs have run"],
    )


def test_putting_together_twice_changes_nothing(divided: Divided) -> None:
    whole, parts, result = divided
    before = {path.name: path.read_bytes() for path in whole.out.iterdir() if path.is_file()}
    log = Log()
    assert put_together(whole, parts, log) == result
    assert {path.name: path.read_bytes() for path in whole.out.iterdir() if path.is_file()} == before
    assert log.notes == []


def test_a_shard_goes_on_by_itself_and_not_as_another(divided: Divided) -> None:
    _, parts, _ = divided
    assert run_campaign(parts[1], Log()).programs == PROGRAMS // 3
    with pytest.raises(CampaignError, match=r"a campaign with shard \[1, 3\], given \[1, 4\]"):
        run_campaign(replace(parts[1], shards=4), Log())


def test_a_spoiled_line_of_a_shard_is_told_and_left_out(divided: Divided) -> None:
    whole, parts, _ = divided
    path = parts[2].out / "records-0.jsonl"
    path.write_text(path.read_text().replace('"seed":2,', '"seed":3,', 1))
    log = Log()
    put_together(whole, parts, log)
    assert sorted(record.seed for record in records(whole.out)) == [seed for seed in range(PROGRAMS) if seed != 2]
    assert len([note for note in log.notes if "does not fit its checksum" in note]) == 1


def test_known_faults_are_dealt_out_and_stand_as_whoever_tried_them_says(options: Any, tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path / "known", "Known: why", f"{number}.py", f"contract/KeyError/elsewhere{number}")
    whole: CampaignOptions = options(programs=4, known=tmp_path / "known")
    parts, phases = dealt(whole, 2), []
    for part in parts:
        log = Log()
        run_campaign(part, log)
        phases.append(sum("still show?" in phase for phase in log.phases))
    assert phases == [2, 2]
    result = put_together(whole, parts, Log())
    assert [one["state"] for one in result.known] == ["gone"] * 4
    assert result.exit_code == 0


def test_what_says_more_of_a_known_fault_wins(options: Any, tmp_path: Path) -> None:
    write(tmp_path / "known", "Known: why", signature="contract/KeyError/elsewhere")
    whole: CampaignOptions = options(known=tmp_path / "known")
    parts = dealt(whole, 3)
    for part, state in zip(parts, ("not tried", "shows", "unclear"), strict=True):
        part.out.mkdir(parents=True)
        write_standings(part.out, [Standing("contract/KeyError/elsewhere", "s.py", "why", 0, state)])
    assert [one["state"] for one in put_together(whole, parts, Log()).known] == ["shows"]


def test_a_cell_is_open_where_no_shard_ran_in_it(options: Any) -> None:
    whole: CampaignOptions = options(programs=12)
    parts = dealt(whole, 2)
    for part in parts:
        run_campaign(part, Log())
    refused = {("triton:torch_native", "verify_tree_decode"): Cell("unsupported", "no trees")}
    write_cells(parts[1].out, {**refused, ("triton:torch_native", "extend"): Cell("unsupported", "not in this shard")})
    put_together(whole, parts, Log())
    ours = {place: cell for place, cell in read_cells(whole.out, print).items() if place[0] == "triton:torch_native"}
    assert ours == refused
