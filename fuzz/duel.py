"""One program run again and again on two targets, until what differs can no longer be chance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from fuzz.confirm import Patience, Runner, bugs, shown_in
from fuzz.finding import Finding, Verdict
from fuzz.program import Program
from fuzz.trace import Trace

ROUND = 5  # runs of each before a look at them: 5 of 5 against 0 of 5 comes by chance once in 252
RUNS_MAX = 40  # of each: a fault that shows in 30 % of the runs is told from none 29 times in 30
CHANCE_MAX = 0.01  # of such a difference between two targets that are alike
STATES = ("new", "uncertain", "gone", "unchanged")
_UNJUDGED = (Verdict.INFRA, Verdict.STUB_GAP)


@dataclass(frozen=True, slots=True)
class Side:
    """What the runs on one target came to. ``blocked`` of them did not get as far as the fault; ``reason``: why not.

    A run that SGLang refuses counts as one that does not show the fault, and is told in ``reason``.
    """

    shown: int = 0
    runs: int = 0
    blocked: int = 0
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.shown}/{self.runs}" if self.runs else "–"

    def and_run(self, trace: Trace, finding: Finding) -> Side:
        """With one more run, of a program that showed ``finding`` somewhere."""
        if shown_in(trace, finding.signature) is not None:
            return replace(self, shown=self.shown + 1, runs=self.runs + 1)
        blocked, reason = _obstacle(trace, finding)
        return replace(self, runs=self.runs + 1, blocked=self.blocked + blocked, reason=self.reason or reason)


@dataclass(frozen=True, slots=True)
class Duel:
    """``state`` is one of STATES, of a fault that showed on one target: new (on the target), gone (from it), ..."""

    state: str
    before: Side
    after: Side
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        sides = {
            name: {"shown": side.shown, "runs": side.runs, "blocked": side.blocked, "reason": side.reason}
            for name, side in (("baseline", self.before), ("target", self.after))
        }
        return {"state": self.state, **sides, "detail": self.detail}


def duel(before: Runner, after: Runner, program: Program, finding: Finding, patience: Patience) -> Duel:
    """Run ``program`` on both by turns until it is clear whether they differ in ``finding``, or patience ends."""
    baseline, target = Side(), Side()
    while baseline.runs < RUNS_MAX and not patience.is_over:
        before.renew()
        after.renew()
        for _ in range(ROUND):
            if baseline.runs and patience.is_over:
                break
            baseline = baseline.and_run(before.run(program, patience.program_seconds), finding)
            target = target.and_run(after.run(program, patience.program_seconds), finding)
        verdict = decide(baseline, target)
        if verdict is not None:
            state, detail = verdict
            return Duel(state, baseline, target, detail)
    return Duel("uncertain", baseline, target, _why_open(baseline, target))


def decide(before: Side, after: Side) -> tuple[str, str] | None:
    """(state, detail) of runs on the baseline and on the target; None while they leave it open."""
    if before.shown and after.shown:
        return "unchanged", ""
    if not before.shown and not after.shown:
        return None
    state, showing, silent = ("new", after, before) if after.shown else ("gone", before, after)
    where = "baseline" if state == "new" else "target"
    if silent.blocked:
        return "uncertain", f"the {where} does not get that far: {silent.reason}"
    if chance(showing.shown, showing.runs, silent.runs) > CHANCE_MAX:
        return None
    return state, f"the {where} refuses the program: {silent.reason}" if silent.reason else ""


def chance(shown: int, runs: int, silent_runs: int) -> float:
    """How likely ``shown`` of all runs fall on one side alone where both are alike (Fisher's exact test, one tail)."""
    return math.comb(runs, shown) / math.comb(runs + silent_runs, shown)


def _why_open(before: Side, after: Side) -> str:
    if not before.runs:
        return "no time was left to run it again"
    if not before.shown and not after.shown:
        return f"did not show again in {before.runs} runs on either"
    return f"{before} against {after} may be chance"


def _obstacle(trace: Trace, finding: Finding) -> tuple[bool, str]:
    """Whether something kept the run from the step of the fault, and what; a refusal of SGLang is no such thing."""
    for one in trace.findings:
        if one.verdict in _UNJUDGED:
            return True, f"{one.verdict.value}: {_line(one.title)}"
    if any(step.verdict is Verdict.OK and _is_at(step.op_index, step.mode, finding) for step in trace.steps):
        return False, ""
    for one in bugs(trace):
        if one.op_index <= finding.op_index:
            return True, f"{one.signature} comes first"
    refused = next((one for one in trace.findings if one.verdict is Verdict.UNSUPPORTED), None)
    return False, f"unsupported: {_line(refused.title)}" if refused else ""


def _is_at(op_index: int, mode: str, finding: Finding) -> bool:
    """Whether a step is the one of the fault, or comes after it."""
    return op_index > finding.op_index or (op_index == finding.op_index and mode == finding.mode)


def _line(text: str) -> str:
    return " ".join(text.split())[:200]
