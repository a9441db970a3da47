"""Finds the simplest program that still shows what the given one shows: ever smaller candidates, to a fixpoint.

Smaller means less ``Program.cost``, a total order, so results are canonical and the search must end.
Never touched: the pair, the runner and the device, which are what a finding is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fuzz.ledger import check
from fuzz.mend import mend
from fuzz.program import Program, ProgramError
from fuzz.reduce import PASSES, Pass
from stubs.world import WorldError

# A campaign's program settles within some 300 tries; the rest is room for stubborn ones.
TRIES_MAX = 1000


class StopShrinking(Exception):
    """Raised by ``shows`` to end early (time is up, the worker is gone); the best so far is the result."""


@dataclass(frozen=True, slots=True)
class Budget:
    """``tries_max``: how often ``shows`` may be asked."""

    tries_max: int = TRIES_MAX


@dataclass(frozen=True, slots=True)
class Shrunk:
    """``tried`` candidates were shown to the predicate, ``kept`` of them became the best.

    ``exhausted``: the budget ran out or StopShrinking came before the fixpoint; a smaller one may exist.
    """

    program: Program
    tried: int
    kept: int
    exhausted: bool


def shrink(program: Program, shows: Callable[[Program], bool], budget: Budget | None = None) -> Shrunk:
    """The smallest program found for which ``shows`` is true, as it must be (it is not asked) for ``program``.

    Raises ProgramError or WorldError if ``program`` itself is not valid.
    """
    check(program)
    search = _Search(program, shows, budget or Budget())
    try:
        while True:
            before = search.best
            for one in PASSES:
                search.run(one)
            if search.best == before:
                return Shrunk(search.best, search.tried, search.kept, exhausted=False)
    except StopShrinking:
        return Shrunk(search.best, search.tried, search.kept, exhausted=True)


class _Search:
    """Owns try-and-keep, so that a pass only lists candidates."""

    def __init__(self, program: Program, shows: Callable[[Program], bool], budget: Budget) -> None:
        self.best = program
        self.tried = 0
        self.kept = 0
        self._shows = shows
        self._budget = budget
        self._seen = {program.hash}

    def run(self, one: Pass) -> None:
        """Take the pass's candidates; after each one kept, start it again on the new best."""
        while any(self._keeps(candidate) for candidate in one(self.best)):
            pass

    def _keeps(self, candidate: Program) -> bool:
        try:
            candidate.world.check()
        except WorldError:
            return False
        candidate = candidate.with_ops(mend(candidate.world, candidate.ops))
        if candidate.hash in self._seen or candidate.cost >= self.best.cost:
            return False
        self._seen.add(candidate.hash)
        assert _is_valid(candidate), f"a mended program is invalid:\n{candidate.text}"
        if self.tried >= self._budget.tries_max:
            raise StopShrinking
        self.tried += 1
        if not self._shows(candidate):
            return False
        self.best = candidate
        self.kept += 1
        return True


def _is_valid(program: Program) -> bool:
    try:
        check(program)
    except ProgramError:
        return False
    return True
