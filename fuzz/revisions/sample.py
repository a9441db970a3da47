"""The runs of one repro on one target: what they come to, and whether they are enough of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fuzz.confirm import bugs
from fuzz.finding import Finding, Verdict
from fuzz.interval import clean_runs_needed
from fuzz.repro import Repro
from fuzz.trace import Trace

# A bug that shows in some runs is run so often in all that its rate is known to about a third; if it then seems so rare
# that no bearable number of clean runs excludes it, up to the limit.
FLAKY_RUNS = 20
RUNS_MAX = 60  # excludes a bug that shows in 1 of 20 runs; a rarer one is not worth the time that it takes to exclude
# What a sample is called by: the first of these that one of its runs is.
_STATES = ("bug", "other", "infra", "stub_gap", "unsupported", "clean")

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Run:
    """``state``: bug (the repro's own), other (another bug), infra, stub_gap, unsupported, or clean: run to its end."""

    state: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    runs: tuple[Run, ...] = ()

    @property
    def n(self) -> int:
        return len(self.runs)

    @property
    def k(self) -> int:
        """How many runs showed the bug that ``state`` speaks of."""
        return sum(run.state == self.state for run in self.runs) if self.state in ("bug", "other") else 0

    @property
    def state(self) -> str:
        """The state of the runs; "infra" where there are none."""
        seen = {run.state for run in self.runs}
        return next((state for state in _STATES if state in seen), "infra")

    @property
    def detail(self) -> str:
        return next((run.detail for run in self.runs if run.state == self.state), "nothing was run")

    def wanted(self, times: int, clean_runs: int) -> int:
        """How many runs it takes in all: ``times``, and more where those say too little.

        Of clean runs as many as exclude chance (``clean_runs``), of a bug that shows sometimes enough for its rate.
        """
        if self.n < times:
            return times
        if any(run.state not in ("bug", "clean") for run in self.runs):
            return self.n
        if self.k == 0:
            return max(self.n, min(clean_runs, RUNS_MAX))
        if self.k == self.n:
            return self.n
        if self.n < FLAKY_RUNS:
            return FLAKY_RUNS
        # The one look half-way; more of them would bias the rate.
        is_rare = self.n > FLAKY_RUNS or clean_runs_needed(self.k, self.n) > RUNS_MAX
        return max(self.n, RUNS_MAX) if is_rare else self.n


def run_of(trace: Trace, repro: Repro) -> Run:
    """What one run showed; "clean" only if it was completed without a finding."""
    own = own_bug(trace, repro)
    if own is not None:
        return Run("bug", str(own.signature))
    other = bugs(trace)
    if other:
        return Run("other", str(other[0].signature))
    for verdict in (Verdict.INFRA, Verdict.STUB_GAP, Verdict.UNSUPPORTED):
        for finding in trace.findings:
            if finding.verdict is verdict:
                return Run(verdict.value, " ".join(f"{finding.title}: {finding.message}".split())[:500])
    if not trace.steps and repro.program.ops:  # a fault at start-up needs no step
        return Run("infra", "no step was run")
    return Run("clean", "every run was completed without a finding")


def own_bug(trace: Trace, repro: Repro) -> Finding | None:
    """The bug that the repro is about: the one of its signature, or any where it names none."""
    own = (finding for finding in bugs(trace) if repro.signature in (None, finding.signature))
    return next(own, None) or next((finding for finding in bugs(trace) if _is_told_in_words(repro, finding)), None)


def _is_told_in_words(repro: Repro, finding: Finding) -> bool:
    """A file from before the rules of a contract were told apart names the argument alone: its title says which rule."""
    title = _NUMBER.sub("", repro.title).rstrip(". ")  # a long one ends in dots
    is_argument = repro.signature == finding.signature.without_rule
    return is_argument and bool(title) and _NUMBER.sub("", finding.title).startswith(title)


def clean_runs_for(script: tuple[int, int], shown: Sequence[tuple[int, int]]) -> int:
    """How many clean runs exclude the bug: 0 where nobody has ever seen it.

    ``script``: in how many of how many runs it showed when it was saved; ``shown``: on each target that has it, too.
    The target on which it shows most rarely counts; where it always showed, what the script says counts in.
    """
    k, n = script
    samples = [(more, runs) if more < runs else (k + more, n + runs) for more, runs in shown] or [script]
    return max((clean_runs_needed(*sample) for sample in samples if sample[0]), default=0)
