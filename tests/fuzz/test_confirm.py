"""The second look at a finding, with a runner that has no process behind it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from fuzz.confirm import Confirmed, Patience, Real, alone, bugs, confirm, confirm_real, shown_in, smallest
from fuzz.finding import Finding, Signature, Verdict
from fuzz.program import Decode, Extend, Idle, Program, Row
from fuzz.trace import Trace
from stubs.world import World

SIGNATURE = Signature("contract", "KeyError", "f")
OTHER = Signature("state", "idle", "g")
PROGRAM = Program(World(), (Extend((Row(0, 3),)), Idle(), Decode((0,)), Idle()))
SMALL = ("extend", "decode")
FOREVER = Patience(program_seconds=1.0, deadline=float("inf"))
OVER = Patience(program_seconds=1.0, deadline=0.0)


def finding(verdict: Verdict = Verdict.BUG, op_index: int = 2, signature: Signature = SIGNATURE) -> Finding:
    return Finding(verdict, signature, "title", "message", op_index, "decode")


def trace(*findings: Finding) -> Trace:
    return Trace((), findings, 0.0, "9.1")


def kinds(program: Program) -> tuple[str, ...]:
    return tuple(op.kind for op in program.ops)


@dataclass
class FakeRunner:
    """Shows the bug where ``shows`` says so of (program, how many runs there were since the process was renewed)."""

    shows: Callable[[Program, int], bool]
    runs: int = 0
    since_renewal: int = 0
    renewals: int = 0
    timeouts: list[float] = field(default_factory=list)
    otherwise: tuple[Finding, ...] = ()

    def renew(self) -> None:
        self.since_renewal = 0
        self.renewals += 1

    def run(self, program: Program, timeout_seconds: float) -> Trace:
        self.runs, self.since_renewal = self.runs + 1, self.since_renewal + 1
        self.timeouts.append(timeout_seconds)
        if self.shows(program, self.since_renewal):
            return trace(finding(op_index=7))
        return trace(*self.otherwise)


def has_decode(program: Program, run: int) -> bool:
    return "decode" in kinds(program)


def test_bugs_before_a_fault_of_the_harness_count() -> None:
    seen = trace(finding(op_index=1), finding(Verdict.INFRA, 2), finding(op_index=2))
    assert [bug.op_index for bug in bugs(seen)] == [1]


def test_other_signatures_are_not_it() -> None:
    assert shown_in(trace(finding(signature=Signature("contract", "KeyError", "g"))), SIGNATURE) is None


def test_ten_runs_of_ten_each_in_a_fresh_process() -> None:
    runner = FakeRunner(has_decode)
    confirmed = confirm(runner, PROGRAM, finding(), FOREVER)
    assert (confirmed.shown, confirmed.runs, runner.timeouts, runner.renewals) == (10, 10, [1.0] * 10, 10)
    assert confirmed.finding.op_index == 7  # as it showed this time


def test_what_shows_in_a_used_process_alone_is_not_shown() -> None:
    confirmed = confirm(FakeRunner(lambda program, run: run > 1), PROGRAM, finding(), FOREVER)
    assert (confirmed.shown, confirmed.runs) == (0, 10)


def test_trial_of_three_runs_ends_where_all_show_it() -> None:
    runner = FakeRunner(has_decode)
    confirmed = confirm(runner, PROGRAM, finding(), FOREVER, enough=3)
    assert (confirmed.shown, confirmed.runs) == (3, 3)


def test_trial_that_one_run_does_not_show_goes_on_to_ten() -> None:
    runner = FakeRunner(lambda program, run: runner.runs != 2)
    confirmed = confirm(runner, PROGRAM, finding(), FOREVER, enough=3)
    assert (confirmed.shown, confirmed.runs) == (9, 10)


def test_program_that_cannot_be_smaller_has_its_ten_runs_too() -> None:
    small = PROGRAM.with_ops((PROGRAM.ops[0], PROGRAM.ops[2]))
    runner = FakeRunner(lambda program, run: kinds(program) == SMALL)
    tried = confirm(runner, small, finding(), FOREVER, enough=3)
    shrunk = smallest(runner, tried, FOREVER)
    assert (kinds(shrunk.program), shrunk.shown, shrunk.runs) == (SMALL, 10, 10)


def test_program_that_cannot_be_smaller_keeps_its_three_runs_when_time_is_up() -> None:
    small = PROGRAM.with_ops((PROGRAM.ops[0], PROGRAM.ops[2]))
    runner = FakeRunner(lambda program, run: kinds(program) == SMALL)
    tried = confirm(runner, small, finding(), FOREVER, enough=3)
    shrunk = smallest(runner, tried, OVER)
    assert (shrunk.shown, shrunk.runs) == (3, 3)


def test_under_the_real_runner() -> None:
    runner = FakeRunner(lambda program, run: program.world.runner == "real")
    real = confirm_real(runner, Confirmed(PROGRAM, finding(), 10, 10), FOREVER)
    assert (real, runner.renewals) == (Real(3, 3), 3)


def test_what_the_real_runner_does_not_show() -> None:
    runner = FakeRunner(lambda program, run: program.world.runner == "fake")
    assert confirm_real(runner, Confirmed(PROGRAM, finding(), 10, 10), FOREVER) == Real(0, 3)


def test_why_the_real_runner_cannot_tell() -> None:
    refusal = replace(finding(Verdict.UNSUPPORTED), title="no window here")
    runner = FakeRunner(lambda program, run: False, otherwise=(refusal,))
    real = confirm_real(runner, Confirmed(PROGRAM, finding(), 10, 10), FOREVER)
    assert (real, runner.runs) == (Real(why_not="unsupported: no window here"), 1)


@pytest.mark.parametrize("mode", ["draft_prefill", "draft_decode", "draft_decode_graph", "draft_extend"])
def test_a_fault_of_the_draft_model_cannot_be_tried_under_the_real_runner(mode: str) -> None:
    runner = FakeRunner(lambda program, run: True)
    real = confirm_real(runner, Confirmed(PROGRAM, replace(finding(), mode=mode), 10, 10), FOREVER)
    assert (real, runner.runs) == (Real(why_not="the real runner has no draft model"), 0)


def test_real_runner_is_not_tried_when_time_is_up() -> None:
    runner = FakeRunner(has_decode)
    real = confirm_real(runner, Confirmed(PROGRAM, finding(), 10, 10), OVER)
    assert (real, runner.runs) == (Real(why_not="no time was left"), 0)


def test_finding_of_the_real_runner_needs_no_other() -> None:
    program = replace(PROGRAM, world=replace(PROGRAM.world, runner="real"))
    assert confirm_real(FakeRunner(has_decode), Confirmed(program, finding(), 10, 10), FOREVER) is None


def test_one_run_even_when_time_is_up() -> None:
    confirmed = confirm(FakeRunner(has_decode), PROGRAM, finding(), OVER)
    assert (confirmed.shown, confirmed.runs) == (1, 1)


def test_smallest() -> None:
    shrunk = smallest(FakeRunner(has_decode), Confirmed(PROGRAM, finding(), 3, 3), FOREVER)
    assert (kinds(shrunk.program), shrunk.shown, shrunk.runs) == (SMALL, 10, 10)


@dataclass
class Mingled(FakeRunner):
    """Shows other faults too: one wherever there is an idle step, one wherever nothing comes before the decode but it."""

    def run(self, program: Program, timeout_seconds: float) -> Trace:
        own = super().run(program, timeout_seconds).findings
        found = kinds(program)
        others = [name for name, shows in (("idle", "idle" in found), ("bare", found == SMALL)) if shows]
        return trace(*own, *(finding(signature=Signature("state", name, "g")) for name in others))


def test_what_else_the_program_shows_is_told() -> None:
    runner = Mingled(has_decode)
    assert confirm(runner, PROGRAM, finding(), FOREVER).beside == ("state/idle/g",)
    assert confirm(runner, PROGRAM.with_ops(PROGRAM.ops[:1]), finding(), FOREVER).beside == ()


def test_no_other_fault_slips_in_and_one_that_has_gone_stays_away() -> None:
    runner = Mingled(has_decode)
    shrunk = smallest(runner, confirm(runner, PROGRAM, finding(), FOREVER), FOREVER)
    assert kinds(shrunk.program) == ("extend", "idle", "decode")  # without the idle step another fault shows
    clean = PROGRAM.with_ops((*PROGRAM.ops[:1], Decode((0,)), Decode((0,))))
    shrunk = smallest(runner, confirm(runner, clean, finding(), FOREVER), FOREVER)
    assert kinds(shrunk.program) == kinds(clean)  # any smaller one would show a fault that this one does not


PAIRS = ("triton:fa3", "flashinfer:torch_native", "fa3:torch_native", "triton:torch_native", "triton:flex_attention")


@dataclass
class Paired(FakeRunner):
    """Shows ``OTHER``, too, where the prefill half is one of ``faulty``."""

    faulty: tuple[str, ...] = ("triton",)

    def run(self, program: Program, timeout_seconds: float) -> Trace:
        shown = super().run(program, timeout_seconds)
        beside = (finding(signature=OTHER),) if program.world.prefill in self.faulty else ()
        return replace(shown, findings=shown.findings + beside)


def both_shown(world: World) -> Confirmed:
    """Of a program that is as small as it gets."""
    program = Program(world, (Extend((Row(0, 1),)),))
    return Confirmed(program, finding(), 10, 10, trace(finding(), finding(signature=OTHER)))


HERE = World(prefill="triton", decode="torch_native")


def has_extend(program: Program, run: int) -> bool:
    return "extend" in kinds(program)


def in_triton(program: Program, run: int) -> bool:
    return has_extend(program, run) and program.world.prefill == "triton"


def test_fault_of_one_half_is_shown_alone_with_another_in_the_other_half() -> None:
    runner = Paired(has_extend, faulty=("triton", "flashinfer"))
    confirmed = smallest(runner, both_shown(HERE), FOREVER, pairs=PAIRS)
    assert (confirmed.program.world.pair, confirmed.beside) == ("fa3:torch_native", ())
    assert (confirmed.shown, confirmed.runs) == (10, 10)


@dataclass
class Verified(FakeRunner):
    """Shows ``OTHER``, too, where the decode half verifies."""

    def run(self, program: Program, timeout_seconds: float) -> Trace:
        shown = super().run(program, timeout_seconds)
        beside = (finding(signature=OTHER),) if program.world.spec_mode == "decode" else ()
        return replace(shown, findings=shown.findings + beside)


def test_fault_of_drafting_is_shown_alone_with_the_other_half_to_verify() -> None:
    drafting = {"spec_algorithm": "EAGLE", "spec_steps": 2, "spec_topk": 1, "spec_draft_tokens": 3}
    world = World(prefill="torch_native", decode="triton", spec_mode="decode", **drafting)
    runner = Verified(lambda program, run: program.world.prefill == "fa3")  # that other half has no verify
    moved = alone(runner, Program(world, ()), SIGNATURE, {OTHER}, FOREVER, ("triton:fa3", "fa3:triton")).world
    assert (moved.pair, moved.spec_mode) == ("fa3:triton", "prefill")


@pytest.mark.parametrize(
    ("runner", "patience"),
    [(Paired(in_triton), FOREVER), (Paired(has_extend), OVER)],
    ids=["it needs that half", "no time"],
)
def test_program_stays_where_it_is_shown_no_better(runner: Paired, patience: Patience) -> None:
    program = both_shown(HERE).program
    assert alone(runner, program, SIGNATURE, {OTHER}, patience, PAIRS) == program


def test_program_that_shows_its_fault_alone_stays_untried() -> None:
    runner = Paired(lambda *_: True)
    assert (alone(runner, PROGRAM, SIGNATURE, (), FOREVER, PAIRS), runner.runs) == (PROGRAM, 0)


def test_program_that_is_less_sure_elsewhere_comes_back() -> None:
    runner = Paired(lambda program, run: in_triton(program, run) or has_extend(program, run) and bool(runner.runs % 2))
    assert smallest(runner, both_shown(HERE), FOREVER, pairs=PAIRS) == both_shown(HERE)


def test_smaller_program_that_needs_a_used_process_is_given_up() -> None:
    runner = FakeRunner(lambda program, run: kinds(program) == kinds(PROGRAM) or run > 1)
    confirmed = Confirmed(PROGRAM, finding(), 3, 3)
    assert smallest(runner, confirmed, FOREVER) == confirmed


def test_no_shrinking_when_time_is_up() -> None:
    runner = FakeRunner(has_decode)
    confirmed = Confirmed(PROGRAM, finding(), 3, 3)
    assert (smallest(runner, confirmed, OVER), runner.runs) == (confirmed, 0)


def test_patience_ends_with_a_stop() -> None:
    stopped = Patience(1.0, time.monotonic() + 100, stopped=lambda: True)
    assert (stopped.is_over, FOREVER.is_over, OVER.is_over) == (True, False, True)


def test_share_of_patience() -> None:
    now = time.monotonic()
    part = Patience(1.0, now + 90).share(1 / 3)
    assert now + 29 < part.deadline < now + 31
    assert (FOREVER.share(1 / 3), OVER.share(1 / 3)) == (FOREVER, OVER)


def test_runs_that_did_not_show_it_say_what_they_came_to() -> None:
    runner = FakeRunner(lambda program, run: False)
    assert confirm(runner, PROGRAM, finding(), FOREVER).otherwise == "clean in 10"
    runner.otherwise = (finding(Verdict.STUB_GAP, signature=Signature("contract", "AttributeError", "g")),)
    runner.shows = lambda program, run: runner.runs > 13
    assert confirm(runner, PROGRAM, finding(), FOREVER).otherwise == "stub_gap (title) in 3"


def test_nothing_is_said_of_other_runs_where_all_showed_it() -> None:
    assert confirm(FakeRunner(has_decode), PROGRAM, finding(), FOREVER).otherwise == ""
