"""What the end of a process says of the target, and what it does not."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from fuzz.death import Death, cause
from fuzz.finding import Verdict
from fuzz.program import Decode, Extend, Program, Row
from stubs.world import World

PROGRAM = Program(World(), (Extend((Row(0, 3),)), Decode((0,))))
DEATH = Death(status=-11, dump="", log="", seconds=1.5)
ELSEWHERE = 'Current thread 0x1 (most recent call first):\n  File "/nowhere/other.py", line 3 in f\n'


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"])
def test_signal_of_its_own_making_is_a_bug(name: str) -> None:
    finding = replace(DEATH, status=-signal.Signals[name]).finding(PROGRAM)
    assert (finding.verdict, str(finding.signature)) == (Verdict.BUG, f"contract/{name}/process")


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGHUP"])
def test_signal_that_somebody_sent_is_infra(name: str) -> None:
    finding = replace(DEATH, status=-signal.Signals[name]).finding(PROGRAM)
    assert (finding.verdict, str(finding.signature)) == (Verdict.INFRA, f"harness/{name}/process")


def test_hang_is_a_bug() -> None:
    finding = replace(DEATH, status=None).finding(PROGRAM)
    assert (finding.verdict, str(finding.signature)) == (Verdict.BUG, "contract/hang/process")
    assert finding.message == "no answer after 2 s; the worker was ended"


def test_crash_outside_sglang_is_infra() -> None:
    assert replace(DEATH, dump=ELSEWHERE).verdict is Verdict.INFRA
    assert replace(DEATH, status=None, dump=ELSEWHERE).verdict is Verdict.INFRA


def test_fault_of_the_harness_is_infra() -> None:
    assert replace(DEATH, status=204, harness=True).verdict is Verdict.INFRA


def test_out_of_memory_is_told() -> None:
    death = replace(DEATH, status=-signal.SIGKILL, out_of_memory=True, memory_mb=812)
    assert (death.verdict, death.kind) == (Verdict.INFRA, "out_of_memory")
    assert death.reason.endswith(
        "ended by SIGKILL in the middle of the program; the machine ran out of memory (the process had 812 MB when last seen)"
    )


def test_memory_past_the_limit_is_a_bug() -> None:
    finding = replace(DEATH, status=None, too_large=True, memory_mb=812).finding(PROGRAM)
    assert (finding.verdict, str(finding.signature)) == (Verdict.BUG, "contract/out_of_memory/process")
    assert finding.message == "the process had 812 MB in memory, more than it may; the worker was ended"


def test_op_under_way_is_named_where_it_is_known() -> None:
    finding = replace(DEATH, op_index=0).finding(PROGRAM)
    assert (finding.op_index, finding.mode, finding.evidence) == (0, "extend", {})


def test_finding_owns_up_that_the_op_is_not_known() -> None:
    finding = replace(DEATH, log="last words").finding(PROGRAM)
    assert (finding.op_index, finding.mode) == (1, "unknown")
    assert finding.evidence == {"op": "not known: the process died; the last op is named", "log": "last words"}


def test_causes_in_words() -> None:
    assert (cause(0), cause(3), cause(-9), cause(-1000)) == ("exit_0", "exit_3", "SIGKILL", "signal_1000")
