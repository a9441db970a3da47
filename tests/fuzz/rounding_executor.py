"""An executor without SGLang whose answers are sums in half precision, added up in an order that the batch decides.

Its tolerance is one that rounding alone passes now and then. The target's ``added(kind)`` is what it adds to each sum.
"""

from __future__ import annotations

import math
import random
import struct
import sys
import time
from collections.abc import Sequence

from fuzz.edit import numbers_in
from fuzz.finding import TIMES_TOLERANCE, Finding, Signature, Verdict
from fuzz.program import Op, Program
from fuzz.trace import Step, Trace
from tests.fuzz import fake_executor

prepare, available_pairs = fake_executor.prepare, fake_executor.available_pairs
speculative_modes = fake_executor.speculative_modes

TERMS = 24  # of a sum
TOLERANCE = 0.009  # three of 1,000 such sums in half precision are farther off, none of 20,000 twice as far
SIGNATURE = Signature("numeric", "wrong_output", "Backend.forward")


def execute(program: Program) -> Trace:
    started = time.monotonic()
    steps: list[Step] = []
    findings: list[Finding] = []
    for index, op in enumerate(program.ops):
        off = max((_off(program, index, op, place) for place, _ in enumerate(numbers_in(op))), default=0.0)
        if off > TOLERANCE and not findings:
            evidence = {TIMES_TOLERANCE: f"{off / TOLERANCE:.3g}"}
            findings.append(Finding(Verdict.BUG, SIGNATURE, "a wrong sum", f"{off:.3g} off", index, op.kind, evidence))
        steps.append(Step(index, op.kind, Verdict.BUG if off > TOLERANCE else Verdict.OK, 0.0, {}))
    return Trace(tuple(steps), tuple(findings), time.monotonic() - started, "9.1")


def _off(program: Program, index: int, op: Op, place: int) -> float:
    """How far the sum of the batch's request at ``place`` is off."""
    draw = random.Random(f"{program.seed}/{index}/{place}")
    terms = [_half(draw.uniform(-1, 1)) for _ in range(TERMS)]
    got = _sum([*terms[place:], *terms[:place]]) + sys.modules["sglang"].added(op.kind)
    return abs(got - math.fsum(terms))


def _sum(terms: Sequence[float]) -> float:
    total = 0.0
    for term in terms:
        total = _half(total + term)
    return total


def _half(value: float) -> float:
    """Rounded to half precision."""
    return float(struct.unpack("e", struct.pack("e", value))[0])
