"""Campaigns on targets of a few lines: what is found, kept and answered, whatever happens to the workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz import store as store_module
from fuzz.campaign import CampaignError, CampaignOptions, CampaignResult, run_campaign
from fuzz.generate import program_for
from fuzz.launch import ROOT
from fuzz.limits import Limits
from fuzz.process import Ready
from fuzz.program import Extend, Program, Row, parse
from fuzz.record import Record
from fuzz.repro import read_repro
from fuzz.sealed import sealed
from fuzz.store import StoreError
from fuzz.targets import TargetError
from stubs.world import World
from tests.fuzz.conftest import CLEAN, FAKE_EXECUTOR, MakeTarget

ON_DECODE = """
import ctypes, os, signal, time

class Backend:
    def forward_decode(self, seed):
        {statement}

def step(kind, seed):
    if kind == "decode":
        Backend().forward_decode(seed)
"""


def on_decode(statement: str) -> str:
    return ON_DECODE.format(statement=statement)


class Log:
    """A Progress that remembers what it was told."""

    def __init__(self) -> None:
        self.pairs: tuple[str, ...] = ()
        self.records: list[Record] = []
        self.findings: list[dict[str, Any]] = []
        self.phases: list[str] = []
        self.notes: list[str] = []
        self.result: CampaignResult | None = None
        self.on_record: Callable[[Record], None] = lambda record: None

    def started(self, options: CampaignOptions, ready: Ready, pairs: tuple[str, ...]) -> None:
        self.pairs = pairs

    def program_done(self, record: Record) -> None:
        self.records.append(record)
        self.on_record(record)

    def finding(self, finding: dict[str, Any]) -> None:
        self.findings.append(dict(finding))

    def phase(self, text: str) -> None:
        self.phases.append(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finished(self, result: CampaignResult) -> None:
        self.result = result


@pytest.fixture
def options(tmp_path: Path, make_target: MakeTarget) -> Callable[..., CampaignOptions]:
    """``options(source, **fields)``: twelve programs on a target with this source, unless told otherwise."""

    def make(source: str = CLEAN, **fields: Any) -> CampaignOptions:
        defaults = CampaignOptions(
            target=f"path:{make_target(source)}",
            repros=tmp_path / "repros",
            out=tmp_path / "out",
            python=sys.executable,
            programs=12,
            executor=FAKE_EXECUTOR,
        )
        return replace(defaults, **fields)

    return make


def records(out: Path) -> list[Record]:
    return [
        Record.from_line(line) for path in sorted(out.glob("records-*.jsonl")) for line in path.read_text().splitlines()
    ]


def findings(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "findings.jsonl").read_text().splitlines()]


def test_clean_target_gives_exit_0_and_one_record_a_program(options: Any) -> None:
    log = Log()
    result = run_campaign(options(), log)
    assert (result.exit_code, result.programs, result.findings) == (0, 12, [])
    assert [record.verdict for record in records(result.out)] == ["ok"] * 12
    assert result.steps == sum(count for record in records(result.out) for _, _, count in record.steps) > 12
    assert log.pairs == ("triton:torch_native",)
    assert log.result is result


def test_programs_come_in_the_order_of_their_seeds(options: Any) -> None:
    result = run_campaign(options(seed=2), Log())
    limits = Limits(pairs=("triton:torch_native",))
    assert [record.seed for record in records(result.out)] == list(range(2_000_006, 2_000_018))
    assert [record.program for record in records(result.out)][3] == program_for(2_000_009, limits).hash


def test_bug_is_confirmed_shrunk_and_saved(options: Any, tmp_path: Path) -> None:
    result = run_campaign(options(on_decode("raise KeyError('x')")), Log())
    (finding,) = findings(result.out)
    assert result.exit_code == 1
    assert finding["signature"] == "contract/KeyError/Backend.forward_decode"
    assert (finding["reliability"], finding["real"]) == ([10, 10], {"shown": 3, "runs": 3, "why_not": ""})
    assert [op.kind for op in parse(finding["program"]).ops] == ["extend", "decode"]
    assert finding["shrunk_ops"] == 2
    assert finding["count"] == sum(record.verdict == "bug" for record in records(result.out)) > 1
    script = tmp_path / "repros" / "contract-KeyError-Backend_forward_decode-d006b7aa.py"
    assert result.scripts == (script,)
    saved = read_repro(script)
    assert (str(saved.signature), saved.program.text) == (finding["signature"], finding["program"])
    assert script.read_text().splitlines()[0] == '"""KeyError at Backend.forward_decode'


def test_shrinking_can_be_left_out(options: Any) -> None:
    result = run_campaign(options(on_decode("raise KeyError('x')"), shrink=False), Log())
    (finding,) = result.findings
    first = next(record for record in records(result.out) if record.verdict == "bug")
    assert (finding["program_hash"], finding["shrunk_ops"]) == (first.program, first.ops)


def test_saved_repro_is_never_overwritten(options: Any, tmp_path: Path) -> None:
    script = tmp_path / "repros" / "contract-KeyError-Backend_forward_decode-d006b7aa.py"
    script.parent.mkdir()
    script.write_text("mine")
    result = run_campaign(options(on_decode("raise KeyError('x')")), Log())
    assert (result.exit_code, result.scripts, script.read_text()) == (1, (script,), "mine")


def test_known_signature_is_counted_and_not_new(options: Any, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.mkdir()
    text = Program(World(), (Extend((Row(0, 1),)),)).text
    signature = "SIGNATURE = 'contract/KeyError/Backend.forward_decode'"
    (known / "a.py").write_text(f"'Known: https://example.org/1'\nPROGRAM = {text!r}\n{signature}\n")
    result = run_campaign(options(on_decode("raise KeyError('x')"), known=known), Log())
    (finding,) = findings(result.out)
    assert (result.exit_code, result.scripts, finding["known"], finding["count"] > 1) == (0, (), True, True)
    assert finding["known_reason"] == "https://example.org/1"
    (standing,) = result.known
    assert (standing["state"], standing["count"]) == ("met", finding["count"])


def test_bug_that_never_shows_again_is_told_and_not_scripted(options: Any, tmp_path: Path) -> None:
    once = f"flag = {str(tmp_path / 'flag')!r}; seen = os.path.exists(flag); open(flag, 'w').close(); seen or {{}}['x']"
    result = run_campaign(options(on_decode(once)), Log())
    (finding,) = findings(result.out)
    assert (result.exit_code, finding["reliability"], finding["script"], finding["count"]) == (1, [0, 10], "", 1)


def test_segfault_costs_no_record_and_is_shrunk(options: Any) -> None:
    result = run_campaign(options(on_decode("ctypes.string_at(0)")), Log())
    (finding,) = findings(result.out)
    assert (result.programs, len(records(result.out))) == (12, 12)
    assert finding["signature"] == "contract/SIGSEGV/Backend.forward_decode"
    assert (finding["reliability"], finding["shrunk_ops"]) == ([10, 10], 2)


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
    driver = f"from tests.fuzz.test_campaign import *\nfrom pathlib import PosixPath\nrun_campaign({chosen!r}, Log())\n"
    process = subprocess.Popen([sys.executable, "-c", driver], cwd=ROOT)
    deadline = time.monotonic() + 60
    while not (chosen.out / "busy").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert [record.seed for record in records(chosen.out)] == [0, 1, 2, 3]

    for _ in range(2):  # twice more it ends everything, and is believed to be guilty of it
        (chosen.out / "busy").unlink()
        process = subprocess.Popen([sys.executable, "-c", driver], cwd=ROOT)
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
    result_of: list[CampaignResult] = []

    def stop(record: Record) -> None:
        if record.verdict == "bug":
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

    log.on_record = stop
    result_of.append(run_campaign(options(slow), log))
    (finding,) = findings(result_of[0].out)
    assert finding["script"] != ""
    assert result_of[0].exit_code == 1


def test_speculation_is_drawn_only_in_modes_that_the_target_verifies_in(options: Any) -> None:
    result = run_campaign(options("MODES = {}\n" + CLEAN, programs=40), Log())
    modes = {mode for record in records(result.out) for mode, _, _ in record.steps}
    assert "decode" in modes
    assert "verify" not in modes


def test_finding_that_nobody_had_looked_into_is_taken_up_again(options: Any) -> None:
    chosen: CampaignOptions = options(on_decode("raise KeyError('x')"))
    first = run_campaign(chosen, Log())
    (finding,) = findings(first.out)
    Path(finding["script"]).unlink()
    assert finding.pop("crc")
    unexamined = {**finding, "reliability": [0, 0], "script": "", "examined": False}  # as a kill meanwhile leaves it
    (first.out / "findings.jsonl").write_text(sealed(unexamined) + "\n")
    run_campaign(chosen, Log())
    (again,) = findings(first.out)
    del again["crc"]
    assert again == finding


def test_two_workers_run_each_program_once(options: Any) -> None:
    result = run_campaign(options(workers=2, programs=40), Log())
    assert sorted(record.seed for record in records(result.out)) == list(range(40))
    assert {record.worker for record in records(result.out)} <= {0, 1}


def test_seconds_end_it(options: Any) -> None:
    started = time.monotonic()
    result = run_campaign(options(programs=None, seconds=2.0), Log())
    assert result.programs > 0
    assert time.monotonic() - started < 10


def test_what_programs_leave_open_is_tried_at_the_end_and_written_down(options: Any) -> None:
    result = run_campaign(options(programs=None, seconds=3.0), Log())
    made = [record for record in records(result.out) if record.seed > 1_000_000]
    assert made and all(record.elapsed_seconds >= 2.7 for record in made)
    cells = [json.loads(line) for line in (result.out / "cells.jsonl").read_text().splitlines()]
    assert {cell["reason"] for cell in cells if cell["pair"] == "triton:fa3"} == {"no fa3 here"}
    open_modes = {cell["mode"] for cell in cells if cell["pair"] == "triton:torch_native"}
    assert "verify_tree_decode" in open_modes and "decode" not in open_modes


def test_so_many_programs_are_so_many(options: Any) -> None:
    result = run_campaign(options(programs=20, seconds=None), Log())
    assert sorted(record.seed for record in records(result.out)) == list(range(20))


def test_stub_gap_is_told_and_not_scripted(options: Any) -> None:
    source = "class Gap(Exception): pass\ndef step(kind, seed):\n    raise Gap('lacks x')\n"
    result = run_campaign(options(source), Log())
    (finding,) = findings(result.out)
    assert (finding["verdict"], finding["script"], finding["count"]) == ("stub_gap", "", 12)
    assert result.exit_code == 3
    assert "no program put the target to the test" in result.reason


def test_refusals_are_in_the_records_alone(options: Any) -> None:
    source = "class Refusal(Exception): pass\ndef step(kind, seed):\n    raise Refusal('no such page size')\n"
    result = run_campaign(options(source), Log())
    assert (result.exit_code, result.findings) == (3, [])
    assert {(record.verdict, record.reason) for record in records(result.out)} == {("unsupported", "no such page size")}


def test_target_that_does_not_import_gives_exit_3_and_why(options: Any) -> None:
    result = run_campaign(options("raise ImportError('no cutlass')"), Log())
    assert result.exit_code == 3
    assert "cannot run the target: ImportError: no cutlass" in result.reason


def test_interpreter_that_is_not_there_gives_exit_3(options: Any) -> None:
    result = run_campaign(options(python="/no/such/python"), Log())
    assert (result.exit_code, result.reason.split(":")[0]) == (3, "cannot start /no/such/python")


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


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"programs": None}, "neither seconds nor programs given; expected at least one"),
        ({"programs": 0}, "programs is 0; expected more than 0"),
        ({"seconds": -1.0}, "seconds is -1.0; expected more than 0"),
        ({"workers": 0}, "workers is 0; expected more than 0"),
        ({"seed": -1}, "seed is -1; expected 0 or more"),
        ({"engine": "magic"}, "engine is 'magic'; expected one of random, exhaustive"),
        ({"runner": "toy"}, "runner is 'toy'; expected one of fake, real"),
        ({"pairs": ("triton",)}, "pair is 'triton'; expected PREFILL:DECODE"),
        ({"pairs": ("triton:triton",)}, "two equal names"),
        ({"pairs": ("triton:nonsense",)}, "pair 'triton:nonsense' is unknown to this target; expected one of triton:"),
        ({"pairs": ("triton:fa3",)}, "pair 'triton:fa3' cannot run on this target here: no fa3 here"),
        ({"known": Path("/no/such/folder")}, "known: /no/such/folder is no folder"),
    ],
)
def test_bad_usage_is_one_clear_line(options: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CampaignError) as caught:
        run_campaign(options(**fields), Log())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_target_is_refused_before_anything_is_written(options: Any) -> None:
    chosen: CampaignOptions = options(target="nonsense")
    with pytest.raises(TargetError):
        run_campaign(chosen, Log())
    assert not chosen.out.exists()
