"""The negative control of a finding about numbers: a difference that batch order or a tolerance makes alone is none.

A wrong rule is wrong whatever the data, and mostly by far. What rounding makes lies just beyond a tolerance, and is
gone with other data, or with the requests of each batch in another order, in which a kernel adds up in another order
too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from fuzz.confirm import Patience, Runner, bugs
from fuzz.edit import with_op, with_requests
from fuzz.finding import TIMES_NEARER, TIMES_TOLERANCE, Finding, Signature
from fuzz.ledger import check
from fuzz.program import Decode, Extend, Finish, Mixed, Op, Program, ProgramError, Retract, Verify
from fuzz.trace import Trace

FAR_TIMES = 4.0  # the tolerance: roundings that add up to so much more than the dozens it allows for are no rounding
NEAR_TIMES = 4.0  # nearer to what a wrong rule gives than to the truth: rounding leads nowhere, least of all there
# What rounding makes in one program of 20 shows in so many of so many runs once in 150 times; a fault that shows in two
# of five does nine times in ten.
CONTROL_RUNS, SHOWN_MIN = 16, 4
SEEDS = 1 << 31  # a program's seed is below


@dataclass(frozen=True, slots=True)
class Control:
    """``shown`` of ``runs`` variants showed a difference there; ``farthest`` of them so many times its tolerance."""

    shown: int
    runs: int
    farthest: float

    @property
    def is_passed(self) -> bool:
        """Whether it is a fault still. One that nobody had the time to try is."""
        return self.farthest >= FAR_TIMES or self.shown * CONTROL_RUNS >= SHOWN_MIN * self.runs

    @property
    def why_dismissed(self) -> str:
        """In a line; "" where it is a fault still."""
        if self.is_passed:
            return ""
        far = f", at most {self.farthest:.2g} times the tolerance" if self.shown else ""
        return (
            f"rounding: shows in {self.shown} of {self.runs} runs with other data and the batch in another order{far}"
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def times_tolerance(finding: Finding) -> float:
    """How many times the tolerance it was off; infinity where it is not about numbers that have one."""
    return float(finding.evidence.get(TIMES_TOLERANCE, "inf"))


def is_borderline(finding: Finding) -> bool:
    """Whether it may be rounding alone."""
    return times_tolerance(finding) < FAR_TIMES and float(finding.evidence.get(TIMES_NEARER, "0")) < NEAR_TIMES


def control(runner: Runner, program: Program, finding: Finding, patience: Patience) -> Control:
    """Run variants of ``program`` which a fault does not care about, until enough of them show a difference there."""
    tried = Control(0, 0, 0.0)
    runner.renew()
    for variant in variants(program):
        if patience.is_over or tried.farthest >= FAR_TIMES or tried.shown >= SHOWN_MIN:
            break
        off = _off(runner.run(variant, patience.program_seconds), finding.signature)
        tried = Control(tried.shown + (off > 0), tried.runs + 1, max(tried.farthest, off))
    return tried


def _off(trace: Trace, signature: Signature) -> float:
    """How far the same place is off, in tolerances; a wrong rule may have another name then. 0: it is not."""
    there = (
        one for one in bugs(trace) if (one.signature.oracle, one.signature.place) == (signature.oracle, signature.place)
    )
    return max(map(times_tolerance, there), default=0.0)


def variants(program: Program) -> Iterator[Program]:
    """The program with other data; by turns with the requests of each batch in the order they had, and in reverse."""
    for number in range(1, CONTROL_RUNS + 1):
        variant = replace(program, seed=(program.seed + number) % SEEDS)
        yield variant if number % 2 == 0 else reordered(variant)


def reordered(program: Program) -> Program:
    """The requests of each batch in reverse, where the scheduler could have them so."""
    for index, op in enumerate(program.ops):
        candidate = with_op(program, index, _reversed(op))
        try:
            check(candidate)
        except ProgramError:
            continue
        program = candidate
    return program


def _reversed(op: Op) -> Op:
    match op:
        case Mixed():
            return replace(op, rows=op.rows[::-1], requests=op.requests[::-1])
        case Extend():
            return replace(op, rows=op.rows[::-1])
        case Verify():
            return with_requests(op, op.requests[::-1])
        case Decode() | Finish() | Retract():
            return replace(op, requests=op.requests[::-1])
    return op
