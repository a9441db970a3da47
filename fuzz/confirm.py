"""Looks twice at a finding: does it show again, how reliably, and in how small a program."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

from fuzz.finding import Finding, Signature, Verdict
from fuzz.program import Program
from fuzz.shrink import Budget, StopShrinking, shrink
from fuzz.steps import DRAFT_MODES
from fuzz.trace import Trace
from stubs.world_rules import SPEC_MODES, fault_of

CONFIRM_RUNS = 10  # each in a fresh process: what shows in half of the runs is missed by all one time in a thousand
TRIAL_RUNS = 3  # before a program is made smaller, where all of them show it: what is saved is confirmed after that
CONFIRM_SHARE = 1 / 3  # of the time there is for a finding: a third is for making it small, and one to confirm that
OTHER_MAX = 200  # characters of what a run came to that did not show it
REAL_RUNS = 3  # under the real runner, which takes seconds to start
_HARNESS_FAULTS = (Verdict.STUB_GAP, Verdict.INFRA)


class Runner(Protocol):
    """Runs programs in a process that can be renewed; ``WorkerProcess`` is one."""

    def run(self, program: Program, timeout_seconds: float) -> Trace: ...

    def renew(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Real:
    """``shown`` of ``runs`` runs under SGLang's own ModelRunner showed it; ``why_not`` where there can be none."""

    shown: int = 0
    runs: int = 0
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """``shown`` of ``runs`` runs of ``program`` showed the signature; ``finding`` is as ``program`` shows it.

    ``trace`` is the last run that showed it, None where none did. ``real`` is the same of its real twin. ``otherwise``
    says what the runs came to that did not show it, "" where all did.
    """

    program: Program
    finding: Finding
    shown: int
    runs: int
    trace: Trace | None = None
    real: Real | None = None
    otherwise: str = ""

    @property
    def beside(self) -> tuple[str, ...]:
        """The signatures of the other faults that ``program`` shows: of the same cause, it may be."""
        return () if self.trace is None else tuple(sorted(map(str, _others(self.trace, self.finding.signature))))


@dataclass(frozen=True, slots=True)
class Patience:
    """``program_seconds`` for one run. Past ``deadline`` (monotonic) no run is begun but the very first."""

    program_seconds: float
    deadline: float
    stopped: Callable[[], bool] = lambda: False

    @property
    def is_over(self) -> bool:
        return self.stopped() or time.monotonic() >= self.deadline

    def share(self, part: float) -> Patience:
        """As much of what is left."""
        now = time.monotonic()
        left = self.deadline - now
        return replace(self, deadline=now + left * part) if 0 < left < math.inf else self


def bugs(trace: Trace) -> tuple[Finding, ...]:
    """The findings to believe: what comes after a fault of the harness may be its consequence and is left out."""
    harness = (finding.op_index for finding in trace.findings if finding.verdict in _HARNESS_FAULTS)
    first = min(harness, default=math.inf)
    return tuple(finding for finding in trace.findings if finding.verdict is Verdict.BUG and finding.op_index < first)


def shown_in(trace: Trace, signature: Signature) -> Finding | None:
    """The finding with this signature, or None."""
    return next((finding for finding in bugs(trace) if finding.signature == signature), None)


def _others(trace: Trace, signature: Signature) -> set[Signature]:
    """The other faults that it shows."""
    return {finding.signature for finding in bugs(trace)} - {signature}


def confirm(
    runner: Runner, program: Program, finding: Finding, patience: Patience, enough: int = CONFIRM_RUNS
) -> Confirmed:
    """Run ``program`` up to CONFIRM_RUNS times, each time in a fresh process; ``enough`` times where each shows it."""
    shown, runs, latest, shown_by = 0, 0, finding, None
    others: Counter[str] = Counter()
    while runs < (enough if shown == runs else CONFIRM_RUNS) and (runs == 0 or not patience.is_over):
        runner.renew()
        trace = runner.run(program, patience.program_seconds)
        again = shown_in(trace, finding.signature)
        runs += 1
        if again is not None:
            shown, latest, shown_by = shown + 1, again, trace
        else:
            others[_came_to(trace)] += 1
    otherwise = ", ".join(f"{what} in {times}" for what, times in others.most_common())
    return Confirmed(program, latest, shown, runs, shown_by, otherwise=otherwise)


def _came_to(trace: Trace) -> str:
    """A run that did not show what was looked for, in a few words."""
    if trace.verdict is Verdict.OK:
        return "clean"
    return " ".join(f"{trace.verdict.value} ({trace.findings[0].title})".split())[:OTHER_MAX]


def confirm_real(runner: Runner, confirmed: Confirmed, patience: Patience) -> Real | None:
    """The same program under the real runner, each time in a fresh process; None if it was there already.

    It takes long to start: past the deadline it is not tried.
    """
    world = confirmed.program.world
    if world.runner == "real":
        return None
    if confirmed.finding.signature.is_corrupt:
        return Real(why_not="inputs are corrupted under the fake runner alone")
    if confirmed.finding.mode in DRAFT_MODES:
        return Real(why_not="the real runner has no draft model")
    program = replace(confirmed.program, world=replace(world, runner="real"))
    shown = runs = 0
    if patience.is_over:
        return Real(why_not="no time was left")
    while runs < REAL_RUNS and not patience.is_over:
        runner.renew()
        trace = runner.run(program, patience.program_seconds)
        is_shown = shown_in(trace, confirmed.finding.signature) is not None
        if not is_shown and trace.verdict not in (Verdict.OK, Verdict.BUG):
            return Real(why_not=f"{trace.verdict.value}: {trace.findings[0].title}")
        shown, runs = shown + is_shown, runs + 1
    return Real(shown, runs)


def smallest(
    runner: Runner, confirmed: Confirmed, patience: Patience, budget: Budget | None = None, pairs: Sequence[str] = ()
) -> Confirmed:
    """Shrink; the result is confirmed in a fresh process, and given up if it is less reliable than what it came from.

    No other fault than those that the program showed may slip in on the way, and one that has gone stays away: so a
    program comes to show its own fault alone, wherever it can, be it in another of the ``pairs``.
    """
    shrinking, signature = patience.share(1 / 2), confirmed.finding.signature
    others = None if confirmed.trace is None else _others(confirmed.trace, signature)

    def shows(candidate: Program) -> bool:
        nonlocal others
        if shrinking.is_over:
            raise StopShrinking
        trace = runner.run(candidate, patience.program_seconds)
        now = _others(trace, signature)
        if shown_in(trace, signature) is None or (others is not None and not now <= others):
            return False
        others = now
        return True

    program = shrink(confirmed.program, shows, budget).program
    moved = alone(runner, program, signature, others or set(), patience.share(1 / 3), pairs)
    for candidate in dict.fromkeys((moved, program)):
        if candidate == confirmed.program and (confirmed.runs == CONFIRM_RUNS or patience.is_over):
            return confirmed
        again = confirm(runner, candidate, confirmed.finding, patience)
        if again.shown * confirmed.runs >= confirmed.shown * again.runs:
            return again
    return confirmed


def alone(
    runner: Runner,
    program: Program,
    signature: Signature,
    others: Collection[Signature],
    patience: Patience,
    pairs: Sequence[str],
) -> Program:
    """The program, which shows ``others`` beside its own fault, with another backend in one half, if that shows fewer.

    ``pairs`` are those that may be tried, each with either half to verify what was drafted. A fault of one half does not
    need the other, whose own faults are in the way. Those that lie further from the cause count less: they may come of it.
    """

    def weigh(beside: Collection[Signature]) -> tuple[int, int]:
        return sum(other.rank <= signature.rank for other in beside), len(beside)

    found, fewest = program, weigh(others)
    for candidate in _with_other_half(program, pairs):
        if fewest == (0, 0) or patience.is_over:
            break
        trace = runner.run(candidate, patience.program_seconds)
        weight = weigh(_others(trace, signature))
        if shown_in(trace, signature) is not None and weight < fewest:
            found, fewest = candidate, weight
    return found


def _with_other_half(program: Program, pairs: Sequence[str]) -> Iterator[Program]:
    """The program in each world that can be and has another of the pairs with one half the same, or the same that verifies."""
    modes = SPEC_MODES if program.world.is_speculative else (program.world.spec_mode,)
    for pair, mode in product((program.world.pair, *pairs), modes):
        prefill, _, decode = pair.partition(":")
        world = replace(program.world, prefill=prefill, decode=decode, spec_mode=mode)
        is_near = prefill == program.world.prefill or decode == program.world.decode
        if is_near and world != program.world and not fault_of(world):
            yield replace(program, world=world)
