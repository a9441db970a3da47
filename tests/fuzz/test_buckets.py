"""Several faults in one target: one bucket each, and each shrunk program shows its own fault and no other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign import CampaignOptions, run_campaign
from fuzz.confirm import bugs
from fuzz.finding import Verdict
from fuzz.launch import WorkerOptions
from fuzz.process import WorkerProcess
from fuzz.program import parse
from fuzz.repro import read_repro
from tests.fuzz.buckets_executor import FAULTS
from tests.fuzz.campaign_log import Log, campaign, findings, records, write_target

EXECUTOR = "tests.fuzz.buckets_executor"


def target(folder: Path, faults: list[str]) -> Path:
    return write_target(folder, f"FAULTS = {faults!r}\n")


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> CampaignOptions:
    """A campaign that has run on a target with all of the faults."""
    folder = tmp_path_factory.mktemp("night")
    options = campaign(folder, target(folder / "target", list(FAULTS)), programs=60, executor=EXECUTOR)
    run_campaign(options, Log())
    return options


@pytest.fixture(scope="module")
def shown_by(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[str], Any], list[str]]:
    """``shown_by(faults, program)``: the signatures that a program shows on a target with these faults."""

    def run(faults: list[str], programs: list[str]) -> list[list[str]]:
        folder = tmp_path_factory.mktemp("again")
        where = target(folder / "target", faults)
        worker = WorkerProcess(WorkerOptions(sys.executable, where, folder, executor=EXECUTOR))
        try:
            traces = [worker.run(parse(program), 60) for program in programs]
        finally:
            worker.close()
        return [[str(finding.signature) for finding in bugs(trace)] for trace in traces]

    return run


def test_one_bucket_a_fault_and_none_merged(night: CampaignOptions) -> None:
    entries = findings(night.out)
    assert sorted(entry["signature"] for entry in entries) == sorted(FAULTS.values())
    counted = {entry["signature"]: entry["count"] for entry in entries}
    seen = [signature for record in records(night.out) for signature in record.signatures]
    assert counted == {signature: seen.count(signature) for signature in FAULTS.values()}
    assert len(seen) > 2 * sum(
        record.verdict == Verdict.BUG.value for record in records(night.out)
    )  # most show several


def test_each_shrunk_program_shows_its_own_fault_and_no_other(night: CampaignOptions, shown_by: Any) -> None:
    entries = findings(night.out)
    shown = shown_by(list(FAULTS), [entry["program"] for entry in entries])
    assert shown == [[entry["signature"]] for entry in entries]


def test_each_shrunk_program_shows_nothing_without_its_fault_and_needs_no_other(
    night: CampaignOptions, shown_by: Any
) -> None:
    programs = {entry["signature"]: entry["program"] for entry in findings(night.out)}
    for fault, signature in list(FAULTS.items())[:3]:  # those that are most alike
        others = [name for name in FAULTS if name != fault]
        assert shown_by(others, [programs[signature]]) == [[]]
        assert shown_by([fault], [programs[signature]]) == [[signature]]


def test_each_script_holds_the_program_of_its_bucket(night: CampaignOptions) -> None:
    for entry in findings(night.out):
        repro = read_repro(Path(entry["script"]))
        assert (str(repro.signature), repro.program.text) == (entry["signature"], entry["program"])
        assert entry["reliability"] == [10, 10]
