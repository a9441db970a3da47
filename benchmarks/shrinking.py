"""Our shrinker against Hypothesis's, on the same failures, out of the same generator: how soon, and how small.

    python benchmarks/shrinking.py [--each N] [--seed N]

A failure is a generated program that meets a planted fault: what a step, and the steps before it, have to be for an
attention backend to go wrong. Real faults would do as well, but running a program on SGLang takes most of a second, and both
shrinkers run hundreds. So nothing is executed: a fault looks at the ops and at the bookkeeping of requests, and each run is
charged what its steps take in a campaign on SGLang, beside the CPU time of the shrinker itself.

Hypothesis draws its programs by our generator, which asks it for each choice. It is handed the very failure by its example
database, as it finds one again that it saw before, and shrinks it with its own settings. The two take turns in who goes first.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, settings, strategies
from hypothesis.database import InMemoryExampleDatabase, choices_to_bytes
from planted_shapes import FAULTS, Fault, moments

from fuzz.choice import Seeded, _FromIndex
from fuzz.generate import generate
from fuzz.limits import Limits
from fuzz.program import Program
from fuzz.shrink import shrink

STEP_SECONDS = 1 / 22  # of a campaign on one core, see README
SEEDS_MAX = 20_000  # looked at for one fault
LIMITS = Limits(pairs=("triton:fa3",), speculative={"triton:fa3": {"prefill": 4, "decode": 4}})
KEY = b"failure"


class Noting(Seeded):
    """Choices that a seed makes, noted."""

    __slots__ = ("made",)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.made: list[int] = []

    def _index(self, count: int) -> int:
        self.made.append(super()._index(count))
        return self.made[-1]


class Drawn(_FromIndex):
    """Choices that Hypothesis makes."""

    __slots__ = ("_draw",)

    def __init__(self, draw: Callable[[Any], int]) -> None:
        self._draw = draw

    def _index(self, count: int) -> int:
        return self._draw(strategies.integers(0, count - 1))


@strategies.composite
def programs(draw: Callable[[Any], int]) -> Program:
    return generate(Drawn(draw), LIMITS)


@dataclass(frozen=True, slots=True)
class Failure:
    """``choices`` are those of the generator that made ``program``."""

    fault: Fault
    program: Program
    choices: tuple[int, ...]


@dataclass(slots=True)
class Count:
    """Asks a fault, and counts how many programs and steps that would have run."""

    fault: Fault
    programs: int = 0
    steps: int = 0

    def __call__(self, program: Program) -> bool:
        self.programs += 1
        self.steps += len(program.ops)
        return self.fault(program.world, moments(program))


@dataclass(frozen=True, slots=True)
class Small:
    """What a shrinker came to. ``seconds`` of CPU are its own; ``charged`` adds the steps that it would have run."""

    program: Program
    programs: int
    seconds: float
    charged: float

    @property
    def size(self) -> tuple[int, int, int]:
        """Ops, rows, tokens."""
        return self.program.cost[:3]


def failures(each: int, seed: int) -> Iterator[Failure]:
    """``each`` of every fault, of the first seeds from ``seed`` on whose programs meet it."""
    for fault in FAULTS:
        found = 0
        for number in range(seed, seed + SEEDS_MAX):
            choices = Noting(number)
            program = generate(choices, LIMITS)
            if fault(program.world, moments(program)):
                found += 1
                yield Failure(fault, program, tuple(choices.made))
            if found == each:
                break
        assert found == each, f"{fault.__name__}: {found} of {each} failures in {SEEDS_MAX} seeds"


def ours(failure: Failure) -> Small:
    asked = Count(failure.fault)
    start = time.process_time()
    program = shrink(failure.program, asked).program
    return _small(program, asked, time.process_time() - start)


def theirs(failure: Failure) -> Small:
    """``hypothesis.find``, which begins with what its database holds."""
    database = InMemoryExampleDatabase()
    # One choice too many: what it finds as it was saved, it takes to be shrunk already.
    database.save(KEY, choices_to_bytes((*failure.choices, 0)))
    asked = Count(failure.fault)
    first: list[Program] = []

    def shows(program: Program) -> bool:
        first.append(program)
        return asked(program)

    chosen = settings(
        database=database,
        phases=(Phase.reuse, Phase.shrink),
        deadline=None,
        derandomize=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    start = time.process_time()
    program = hypothesis.find(programs(), shows, settings=chosen, database_key=KEY)
    assert first[0] == failure.program, "Hypothesis did not begin with the failure"
    return _small(program, asked, time.process_time() - start)


def _small(program: Program, asked: Count, seconds: float) -> Small:
    return Small(program, asked.programs, seconds, seconds + asked.steps * STEP_SECONDS)


def compare(each: int, seed: int) -> None:
    pairs: list[tuple[Small, Small]] = []
    print(f"{'fault':26} {'was':>12}  {'ours':>12} {'theirs':>12}   programs run      CPU seconds    charged seconds")
    for number, failure in enumerate(failures(each, seed)):
        if number % 2:
            their, our = theirs(failure), ours(failure)
        else:
            our, their = ours(failure), theirs(failure)
        pairs.append((our, their))
        sizes = [_spelled(one) for one in (failure.program.cost[:3], our.size, their.size)]
        print(
            f"{failure.fault.__name__:26} {sizes[0]:>12}  {sizes[1]:>12} {sizes[2]:>12}   "
            f"{our.programs:5} {their.programs:6}   {our.seconds:6.2f} {their.seconds:7.2f}   "
            f"{our.charged:7.1f} {their.charged:8.1f}",
            flush=True,
        )
    _sum_up(pairs)


def _spelled(size: tuple[int, ...]) -> str:
    return "/".join(map(str, size))


def _sum_up(pairs: list[tuple[Small, Small]]) -> None:
    for name, value in (
        ("ops", lambda one: one.size[0]),
        ("rows", lambda one: one.size[1]),
        ("tokens", lambda one: one.size[2]),
        ("programs run", lambda one: one.programs),
        ("CPU seconds", lambda one: one.seconds),
        ("charged seconds", lambda one: one.charged),
    ):
        our, their = ([value(pair[side]) for pair in pairs] for side in (0, 1))
        more = sum(a > b for a, b in zip(our, their, strict=True))
        print(f"{name}: median ours {statistics.median(our):.4g}, theirs {statistics.median(their):.4g}; "
              f"ours more in {more} of {len(pairs)}")  # fmt: skip
    longer = sum(our.size > their.size for our, their in pairs)
    print(f"longer, by ops, then rows, then tokens: ours in {longer} of {len(pairs)}")


def main() -> None:
    parser = argparse.ArgumentParser(description="our shrinker against Hypothesis's on the same failures")
    parser.add_argument("--each", type=int, default=3, help="failures of each of the ten faults")
    parser.add_argument("--seed", type=int, default=0, help="the first seed that is looked at for failures")
    options = parser.parse_args()
    compare(options.each, options.seed)


if __name__ == "__main__":
    main()
