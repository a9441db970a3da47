"""Goes on behind an attribute that a wrapper forgot and a child of it has: supplies it, and runs the program again.

One forgotten name stops every program that comes to it, and hides what lies behind. What shows only with the name
supplied says so, in its evidence ("needs") and in its script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from fuzz.finding import Finding, Verdict
from fuzz.trace import Step, Trace
from fuzz.wrapped import children_of

SUPPLIES_MAX = 4  # names supplied to one program; each is a run of it more
NEEDS, BEHIND = "needs", "behind"  # names of evidence


@dataclass(frozen=True, slots=True)
class Supply:
    """The wrapper class ``owner`` answers for ``name`` with what its attribute ``child`` answers."""

    owner: type
    name: str
    child: str

    def __str__(self) -> str:
        return f"{self.owner.__module__}.{self.owner.__qualname__}.{self.name} from {self.child}"


class _Forwarded:
    """What stands in the class meanwhile. An instance that sets the attribute itself has its own, as ever."""

    def __init__(self, supply: Supply) -> None:
        self._supply = supply

    def __get__(self, wrapper: Any, owner: type) -> Any:
        if wrapper is None:
            raise AttributeError(self._supply.name)
        return getattr(getattr(wrapper, self._supply.child), self._supply.name)


def supply_for(error: BaseException) -> Supply | None:
    """What would have spared the target this error: a name read off a wrapper, and a child that has it; else None."""
    if not isinstance(error, AttributeError) or not isinstance(getattr(error, "name", None), str):
        return None
    wrapper, name, owner = error.obj, str(error.name), type(error.obj)
    if hasattr(owner, name):
        return None  # a property of the wrapper's own that failed
    held = (held for held, child in children_of(wrapper) if hasattr(child, name))
    child = next(held, None)
    return None if child is None else Supply(owner, name, child)


@contextmanager
def supplied(supplies: Sequence[Supply]) -> Iterator[None]:
    """The classes answer for the names, and then no more."""
    for supply in supplies:
        setattr(supply.owner, supply.name, _Forwarded(supply))
    try:
        yield
    finally:
        for supply in supplies:
            delattr(supply.owner, supply.name)


def past_masks(run: Callable[[], tuple[Trace, Supply | None]]) -> Trace:
    """``run`` gives a trace and what would have let it go on. The trace of all runs, each with more supplied."""
    trace, wanted = run()
    supplies: list[Supply] = []
    while wanted is not None and wanted not in supplies and len(supplies) < SUPPLIES_MAX:
        supplies.append(wanted)
        with supplied(supplies):
            again, wanted = run()
        trace = _joined(trace, again, supplies)
    return trace


def _joined(masked: Trace, again: Trace, supplies: Sequence[Supply]) -> Trace:
    """What ``again`` shows and ``masked`` does not needed the supplies.

    Where ``again`` came to an end that is no fault of the target, that is told beside the mask alone: a fault that is
    plain to see is not to be outranked by what our own hand led to.
    """
    seen = {finding.signature for finding in masked.findings}
    behind = [finding for finding in again.findings if finding.signature not in seen]
    ends = [finding for finding in behind if finding.verdict is not Verdict.BUG]
    before_end = [
        one for one in behind if one.verdict is Verdict.BUG and one.op_index < (ends[0].op_index if ends else 1 << 31)
    ]
    needs = "; ".join(map(str, supplies))
    findings = [*masked.findings]
    if ends:
        told = f"{ends[0].verdict.value}: {ends[0].title} (with {needs})"
        findings[-1] = replace(findings[-1], evidence={**findings[-1].evidence, BEHIND: told})
    findings += [replace(one, evidence={NEEDS: needs, **one.evidence}) for one in before_end]
    steps = again.steps if len(again.steps) >= len(masked.steps) and not ends else masked.steps
    return Trace(_marked(steps, findings), tuple(findings), masked.seconds + again.seconds, masked.sglang_version)


def _marked(steps: Sequence[Step], findings: Sequence[Finding]) -> tuple[Step, ...]:
    """The steps, those with a fault of any run marked so."""
    bugs = (one for one in findings if one.verdict is Verdict.BUG and not one.signature.is_corrupt)
    faults = {(one.op_index, one.mode) for one in bugs}
    return tuple(replace(s, verdict=Verdict.BUG) if (s.op_index, s.mode) in faults else s for s in steps)
