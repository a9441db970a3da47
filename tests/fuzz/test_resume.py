"""A campaign goes on where it stopped: killed at any moment, its files spoiled, its disk full."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign import CampaignError, CampaignOptions, run_campaign
from fuzz.launch import ROOT
from fuzz.sealed import sealed, unsealed
from tests.fuzz.campaign_log import FAULTS, FAULTY, Log, campaign, records, start, write_target
from tests.fuzz.test_known import write

# Runs a campaign on a disk of its own that is too small, makes it larger, and runs the campaign again.
FULL_DISK = """
import json, subprocess
from tests.fuzz.test_resume import outcome, programs
from pathlib import PosixPath
from fuzz.campaign import CampaignOptions, run_campaign
from fuzz.store import StoreError
from tests.fuzz.campaign_log import Log, findings, records

options, log, error = {options!r}, Log(), ""
mount = ["mount", "-t", "tmpfs", "none", str(options.out.parent), "-o"]
subprocess.run([*mount, "size=300k"], check=True)
try:
    run_campaign(options, log)
except StoreError as raised:
    error = str(raised)
told = [record.seed for record in log.records], sorted(finding["signature"] for finding in log.findings)
kept = [record.seed for record in records(options.out)], sorted(entry["signature"] for entry in findings(options.out))
subprocess.run([*mount, "remount,size=30m"], check=True)
result = run_campaign(options, log := Log())
scripts = sorted(path.name for path in result.scripts if path.exists())
print(json.dumps([error, told, kept, outcome(options.out), programs(options.out), scripts, log.notes]))
"""
KILLS = 50


def outcome(out: Path, *without: str) -> list[dict[str, Any]]:
    """The findings without what depends on the clock."""
    entries = [unsealed(line) for line in (out / "findings.jsonl").read_text().splitlines()]
    for entry in entries:
        for name in ("first_seconds", *without):
            del entry[name]
        entry["script"] = Path(entry["script"]).name
    return sorted(entries, key=lambda entry: str(entry["signature"]))


def programs(out: Path) -> list[tuple[int, str]]:
    return sorted((record.seed, record.program) for record in records(out))


def size(out: Path) -> int:
    path = out / "records-0.jsonl"
    return path.stat().st_size if path.exists() else 0


def test_campaign_killed_fifty_times_ends_with_the_findings_of_an_undisturbed_one(options: Any, tmp_path: Path) -> None:
    plain: CampaignOptions = options(FAULTY, programs=1000, out=tmp_path / "plain", repros=tmp_path / "plain-repros")
    run_campaign(plain, Log())
    chosen = replace(plain, out=tmp_path / "out", repros=tmp_path / "repros")
    moments = random.Random(5)
    kills = 0
    while kills < KILLS:
        before = size(chosen.out)
        process = start(chosen)
        while kills % 5 and size(chosen.out) == before and process.poll() is None:
            time.sleep(0.005)  # of five kills one comes at any time, while it starts too, and four once it runs
        time.sleep(moments.uniform(0, 0.6 if kills % 5 == 0 else 0.15))
        process.kill()
        if process.wait() == 0:
            break
        kills += 1
    assert kills == KILLS, "it was through too soon: give it more programs"
    result = run_campaign(chosen, Log())
    assert {entry["signature"] for entry in outcome(plain.out)} == FAULTS
    assert outcome(chosen.out) == outcome(plain.out)
    assert programs(chosen.out) == programs(plain.out)
    assert [seed for seed, _ in programs(chosen.out)] == list(range(1000))
    assert (result.programs, result.exit_code) == (1000, 1)
    saved = {path.name: path.read_text() for path in chosen.repros.iterdir()}
    assert saved == {path.name: path.read_text() for path in plain.repros.iterdir()}


def test_finished_campaign_starts_no_worker_and_answers_the_same(options: Any) -> None:
    chosen: CampaignOptions = options(FAULTY, programs=40)
    first = run_campaign(chosen, Log())
    (chosen.out / "worker-0.log").unlink()
    again = run_campaign(chosen, Log())
    assert not (chosen.out / "worker-0.log").exists()
    assert again == first


def test_larger_budget_goes_on(options: Any) -> None:
    chosen: CampaignOptions = options(FAULTY, programs=10)
    run_campaign(chosen, Log())
    log = Log()
    result = run_campaign(replace(chosen, programs=15), log)
    assert [record.seed for record in log.records] == [10, 11, 12, 13, 14]
    assert result.programs == 15
    assert log.notes == [f"going on in {chosen.out}, where 10 programs have run"]


def test_seconds_that_are_spent_are_not_spent_again(options: Any) -> None:
    chosen: CampaignOptions = options(FAULTY, programs=5)
    run_campaign(chosen, Log())
    late = [replace(record, elapsed_seconds=100.0).to_line() for record in records(chosen.out)]
    (chosen.out / "records-0.jsonl").write_text("".join(f"{line}\n" for line in late))
    assert run_campaign(replace(chosen, programs=None, seconds=99.0), Log()).programs == 5
    assert run_campaign(replace(chosen, programs=6, seconds=9999.0), Log()).programs == 6
    assert records(chosen.out)[-1].elapsed_seconds > 100


def test_stopped_program_runs_again(options: Any) -> None:
    source = "import os, time\ndef step(kind, seed):\n    if not os.path.exists('go'): open('busy', 'w').close(); time.sleep(99)\n"
    chosen: CampaignOptions = options(source, programs=3)
    process = start(chosen)
    while not (chosen.out / "busy").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.wait()
    assert records(chosen.out) == []
    (chosen.out / "go").touch()
    run_campaign(chosen, Log())
    assert [(record.seed, record.verdict) for record in records(chosen.out)] == [(0, "ok"), (1, "ok"), (2, "ok")]
    assert not (chosen.out / "lost.jsonl").exists()


@pytest.mark.parametrize("fields", [{"seed": 9}, {"pairs": ("triton:torch_native",)}, {"twins": True}])
def test_folder_of_another_campaign_is_refused(options: Any, fields: dict[str, Any]) -> None:
    chosen: CampaignOptions = options(programs=2)
    run_campaign(chosen, Log())
    (name,) = fields
    with pytest.raises(CampaignError, match=f"out holds a campaign with {name} .*; give this one another --out"):
        run_campaign(replace(chosen, **fields), Log())


def test_target_that_has_changed_is_refused(options: Any) -> None:
    chosen: CampaignOptions = options(programs=2)
    run_campaign(chosen, Log())
    package = Path(chosen.target.removeprefix("path:")) / "sglang" / "__init__.py"
    package.write_text(package.read_text().replace("9.1", "9.2"))
    os.utime(package, (0, 0))  # of another second than what Python has compiled: the new text is as long
    with pytest.raises(CampaignError, match=r"a campaign on SGLang 9\.1, and .* is 9\.2 now; give this one another"):
        run_campaign(replace(chosen, programs=3), Log())


def test_full_disk_is_loud_claims_nothing_and_goes_on_once_there_is_room(options: Any, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    plain: CampaignOptions = options(FAULTY, programs=1000)
    chosen = replace(plain, out=tmp_path / "disk" / "out", repros=tmp_path / "disk" / "repros")
    unshared = ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*unshared, "true"], check=False).returncode:
        pytest.skip("needs a mount namespace of its own")
    command = [*unshared, sys.executable, "-c", FULL_DISK.format(options=chosen)]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    error, told, kept, findings, run, scripts, notes = json.loads(said)
    assert re.fullmatch(r"cannot write .*: No space left on device; make room or give another folder; .*", error)
    assert told[0] == kept[0]
    assert set(told[1]) <= set(kept[1])  # what nobody had looked into yet is told when it goes on
    assert 0 < len(kept[0]) < 1000
    run_campaign(plain, Log())
    assert findings == outcome(plain.out)
    assert [tuple(entry) for entry in run] == programs(plain.out)
    assert scripts == sorted(path.name for path in plain.repros.iterdir())
    assert notes == [f"going on in {chosen.out}, where {len(kept[0])} programs have run"]


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def emptied(data: bytes) -> bytes:
    return b""


def flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :] if data else data


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> CampaignOptions:
    """A campaign that was killed after it had run to its end, with a journal left; a known fault was not met."""
    folder = tmp_path_factory.mktemp("finished")
    write(folder / "known", "Known: why", signature="contract/KeyError/elsewhere")
    chosen = campaign(folder, write_target(folder / "target", FAULTY), programs=30, known=folder / "known")
    run_campaign(chosen, Log())
    record = records(chosen.out)[-1]
    (chosen.out / "journal-0.json").write_text(sealed({"record": record.to_line(), "program": "lost"}))
    (chosen.out / "lost.jsonl").write_text(sealed({"seed": 7, "program": "abcd"}) + "\n")
    (chosen.out / "run.json").write_text(json.dumps({"title": "t", "command": "c", "python": "p"}) + "\n")
    return chosen


# What they hold decides how a campaign goes on; lists of lines may be empty.
TOLD = (
    "campaign.json",
    "cells.jsonl",
    "findings.jsonl",
    "journal-0.json",
    "known.jsonl",
    "lost.jsonl",
    "records-0.jsonl",
)
FILES = (*TOLD, "run.json", "worker-0.log", "worker-0.slot", "worker-0.stack")


def test_these_are_all_files_of_an_out_folder(finished: CampaignOptions) -> None:
    assert sorted(path.name for path in finished.out.iterdir()) == [".lock", *FILES]


@pytest.mark.parametrize("damage", [truncated, emptied, flipped])
@pytest.mark.parametrize("name", FILES)
def test_spoiled_file_is_set_aside_and_the_campaign_ends_as_it_would_have(
    finished: CampaignOptions, tmp_path: Path, name: str, damage: Any
) -> None:
    chosen = replace(finished, out=tmp_path / "out")
    shutil.copytree(finished.out, chosen.out)
    path = chosen.out / name
    path.write_bytes(damage(path.read_bytes()))
    log = Log()
    result = run_campaign(chosen, log)
    assert result.exit_code == 1
    # What runs again is met when more programs have run.
    assert outcome(chosen.out, "first_programs") == outcome(finished.out, "first_programs")
    assert sorted(record.seed for record in records(chosen.out)) == list(range(30))
    assert [one["state"] for one in result.known] == ["unclear"]
    told = [note for note in log.notes if "set aside" in note]
    is_told = name in TOLD and (damage is not emptied or name == "campaign.json")
    assert bool(told) == is_told
    assert (chosen.out / f"{name}.broken").exists() == is_told
    assert all(str(path) in note for note in told)
