"""A campaign that is stopped: a worker or all of it killed, Ctrl-C, a full disk."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fuzz import store as store_module
from fuzz.campaign import CampaignOptions, run_campaign
from fuzz.generate import program_for
from fuzz.limits import Limits
from fuzz.program import parse
from fuzz.record import Record
from fuzz.store import StoreError
from tests.fuzz.campaign_log import Log, findings, on_decode, records, start


def test_worker_killed_in_mid_program_costs_no_record_and_the_program_is_told(options: Any) -> None:
    source = "import os, time\ndef step(kind, seed):\n    open(f'busy-{os.getpid()}', 'w').close(); time.sleep(0.05)\n"
    chosen: CampaignOptions = options(source, programs=6)

    def kill_when_busy(record: Record) -> None:
        if record.seed == 2:
            (busy,) = chosen.out.glob("busy-*")
            busy.unlink()
            threading.Thread(target=kill_next, args=(busy,)).start()

    def kill_next(busy: Path) -> None:
        while not busy.exists():  # it comes back with the first step of the next program
            time.sleep(0.001)
        os.kill(int(busy.name.removeprefix("busy-")), signal.SIGKILL)

    log = Log()
    log.on_record = kill_when_busy
    result = run_campaign(chosen, log)
    assert [record.verdict for record in records(result.out)] == ["ok", "ok", "ok", "infra", "ok", "ok"]
    (finding,) = findings(result.out)
    assert (finding["signature"], finding["verdict"], finding["seed"]) == ("harness/SIGKILL/process", "infra", 3)
    assert parse(finding["program"]).hash == records(result.out)[3].program
    assert result.exit_code == 0


def test_campaign_killed_whole_loses_nothing(options: Any, tmp_path: Path) -> None:
    source = "import os, time\ndef step(kind, seed):\n    if seed == {seed}:\n        open('busy', 'w').close(); time.sleep(99)\n"
    stuck = program_for(4, Limits(pairs=("triton:torch_native",)))
    chosen: CampaignOptions = options(source.format(seed=stuck.seed))
    process = start(chosen)
    deadline = time.monotonic() + 60
    while not (chosen.out / "busy").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert [record.seed for record in records(chosen.out)] == [0, 1, 2, 3]

    for _ in range(2):  # twice more it ends everything, and is believed to be guilty of it
        (chosen.out / "busy").unlink()
        process = start(chosen)
        while not (chosen.out / "busy").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
        process.wait()
    result = run_campaign(chosen, Log())
    lost = records(result.out)[4]
    assert (lost.seed, lost.program, lost.verdict) == (4, stuck.hash, "infra")
    assert lost.reason == "the campaign ended again and again while this program ran"
    assert [parse(finding["program"]) for finding in result.findings] == [stuck]
    assert sorted(record.seed for record in records(result.out)) == list(range(12))
    assert not list(chosen.out.glob("journal-*"))


def test_ctrl_c_keeps_what_there_is(options: Any) -> None:
    chosen: CampaignOptions = options(on_decode("raise KeyError('x')"), programs=100_000)
    log = Log()
    log.on_record = lambda record: os.kill(os.getpid(), signal.SIGINT) if len(log.records) == 30 else None
    result = run_campaign(chosen, log)
    assert result.interrupted
    assert 30 <= result.programs < 100_000
    assert len(records(result.out)) == result.programs
    assert [finding["signature"] for finding in findings(result.out)] == ["contract/KeyError/Backend.forward_decode"]


def test_finding_is_saved_when_the_stop_comes_while_it_is_examined(options: Any) -> None:
    slow = on_decode("time.sleep(0.3); raise KeyError('x')")
    log = Log()

    def stop(phase: str) -> None:
        if phase.startswith("confirming") and not log.findings:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

    log.on_phase = stop
    result = run_campaign(options(slow), log)
    (finding,) = findings(result.out)
    assert finding["script"] != ""
    assert result.interrupted
    assert result.exit_code == 1


def test_full_disk_stops_the_campaign_loudly(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write, calls = os.write, []

    def full(fd: int, data: bytes) -> int:
        if b'"elapsed_seconds"' in data:
            calls.append(fd)
            if len(calls) > 4:
                raise OSError(28, "No space left on device")
        return real_write(fd, data)

    chosen: CampaignOptions = options()
    monkeypatch.setattr(store_module.os, "write", full)
    with pytest.raises(StoreError, match="No space left on device"):
        run_campaign(chosen, Log())
    assert len(records(chosen.out)) == 4
