"""Whatever a target does to its worker, the guilty program is named with the right cause and the campaign goes on."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from fuzz import campaign as campaign_module
from fuzz.campaign import CampaignOptions, run_campaign
from fuzz.finding import Finding, Verdict
from fuzz.generate import program_for
from fuzz.limits import Limits
from fuzz.process import WorkerError, WorkerProcess
from fuzz.program import Decode, Extend, Program, Row
from fuzz.slot import begin, begin_op, op_begun, open_slot, watch_in
from stubs.world import World
from tests.fuzz.campaign_log import Log, findings, records
from tests.fuzz.conftest import MakeWorker

PROGRAM = Program(World(), (Extend((Row(0, 3),)), Decode((0,)), Decode((0,))))
MEMORY_MB = 200  # the worker itself has some 20
# The second op of a program does one of seven dreadful things, by the program's seed.
TARGET = """
import ctypes, os, re, signal

class Backend:
    def segfault(self):
        ctypes.string_at(0)

    def killed(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def leave(self):
        os._exit(7)

    def interrupt(self):
        raise KeyboardInterrupt

    def hang_in_c(self):
        re.match("(a+)+$", "a" * 64 + "b")

    def loop(self):
        while True:
            pass

    def allocate(self):
        blocks = []
        while True:
            blocks.append(b"x" * (16 << 20))

DEEDS = ("segfault", "killed", "leave", "interrupt", "hang_in_c", "loop", "allocate")
last = None

def step(kind, seed):
    global last
    if last == seed:  # the second op, in mid-program
        last = None
        getattr(Backend(), DEEDS[seed % 7])()
    last = seed
"""
SIGNATURES = (
    "contract/SIGSEGV/Backend.segfault",
    "harness/SIGKILL/process",
    "contract/exit_7/process",
    "contract/KeyboardInterrupt/Backend.interrupt",
    "contract/hang/Backend.hang_in_c",
    "contract/hang/Backend.loop",
    "contract/out_of_memory/Backend.allocate",
)


def only_finding(worker: WorkerProcess, timeout_seconds: float = 20) -> Finding:
    (finding,) = worker.run(PROGRAM, timeout_seconds).findings
    return finding


def test_each_of_fifty_injected_programs_is_named_with_its_cause(options: Any) -> None:
    chosen: CampaignOptions = options(TARGET, programs=50, program_seconds=2.5, memory_mb=MEMORY_MB, shrink=False)
    started = time.monotonic()
    result = run_campaign(chosen, Log())
    seconds = time.monotonic() - started
    written = records(result.out)
    assert [record.seed for record in written] == list(range(50))
    limits = Limits(pairs=("triton:torch_native",))
    expected = [SIGNATURES[program_for(record.seed, limits).seed % 7] for record in written]
    assert [record.signature for record in written] == expected
    assert set(expected) == set(SIGNATURES)
    assert {finding["signature"] for finding in findings(result.out)} == set(SIGNATURES)
    assert seconds < 120


ONE = """
import ctypes, os, signal, time

class Backend:
    def forward_decode(self):
        {deed}

def step(kind, seed):
    if kind == "decode":
        Backend().forward_decode()
"""


def test_op_under_way_is_named(make_worker: MakeWorker) -> None:
    finding = only_finding(make_worker(ONE.format(deed="os._exit(3)")))
    assert (finding.op_index, finding.mode, "op" in finding.evidence) == (1, "decode", False)


def test_stack_of_a_crash_is_told_though_another_handler_was_put_in_its_way(make_worker: MakeWorker) -> None:
    source = "import signal\nsignal.signal(signal.SIGSEGV, lambda *_: None)\n" + ONE.format(deed="ctypes.string_at(0)")
    finding = only_finding(make_worker(source))
    assert str(finding.signature) == "contract/SIGSEGV/Backend.forward_decode"


def test_hang_is_placed_though_another_handler_was_put_in_its_way(make_worker: MakeWorker) -> None:
    source = "import signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)\n" + ONE.format(deed="time.sleep(99)")
    finding = only_finding(make_worker(source), timeout_seconds=0.5)
    assert str(finding.signature) == "contract/hang/Backend.forward_decode"


def test_memory_taken_is_told(make_worker: MakeWorker) -> None:
    source = ONE.format(deed="hoard = [b'x' * (1 << 20) for _ in range(300)]; time.sleep(99)")
    finding = only_finding(make_worker(source, memory_mb=MEMORY_MB))
    assert (finding.verdict, finding.signature.kind) == (Verdict.BUG, "out_of_memory")
    assert re.fullmatch(
        r"the process had [23]\d\d MB in memory, more than it may; the worker was ended", finding.message
    )


def test_memory_taken_is_told_though_nobody_looked_before_the_time_was_up(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkerProcess, "_look", lambda self: None)  # as where the supervisor got no turn
    source = ONE.format(deed="hoard = [b'x' * (1 << 20) for _ in range(300)]; time.sleep(99)")
    finding = only_finding(make_worker(source, memory_mb=MEMORY_MB), timeout_seconds=2)
    assert str(finding.signature) == "contract/out_of_memory/Backend.forward_decode"


def test_memory_that_is_given_back_is_nobodys_fault(make_worker: MakeWorker) -> None:
    worker = make_worker(ONE.format(deed="b'x' * (100 << 20)"), memory_mb=MEMORY_MB)
    assert [worker.run(PROGRAM, 20).verdict for _ in range(3)] == [Verdict.OK] * 3


def test_process_that_grew_by_many_programs_makes_room_and_none_is_blamed(make_worker: MakeWorker) -> None:
    source = "hoard = []\npids = set()\n" + ONE.format(
        deed="hoard.append(b'x' * (40 << 20)); print(os.getpid(), flush=True)"
    )
    worker = make_worker(source, memory_mb=MEMORY_MB)
    assert [worker.run(PROGRAM, 20).verdict for _ in range(6)] == [Verdict.OK] * 6
    pids = (worker.options.out / "worker-0.log").read_text().split()
    assert len(set(pids)) > 1


def test_worker_that_is_too_large_from_the_start_says_so(make_worker: MakeWorker) -> None:
    with pytest.raises(WorkerError, match=r"has \d+ MB once the target is imported, and may have 5 MB"):
        make_worker(memory_mb=5).run(PROGRAM, 20)


def test_campaign_ends_on_time_over_a_program_that_hangs(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_module, "LAST_SECONDS", 0.5)
    chosen: CampaignOptions = options(
        "import time\ndef step(kind, seed):\n    time.sleep(99)\n", programs=None, seconds=1.5
    )
    started = time.monotonic()
    result = run_campaign(chosen, Log())
    assert time.monotonic() - started < 10
    (record,) = records(result.out)
    assert (record.verdict, record.reason) == ("infra", "the campaign's time was up while this program ran")


def test_what_a_slot_says_outlives_the_process_and_names_its_request(tmp_path: Path) -> None:
    slot = open_slot(tmp_path / "slot")
    watch_in(tmp_path / "slot")
    begin(7)
    assert op_begun(slot, 7) is None
    begin_op(2)
    assert (op_begun(slot, 7), op_begun(slot, 8)) == (2, None)
