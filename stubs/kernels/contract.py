"""How a stand-in for a closed kernel refuses a call: which function, which argument, whose request, which numbers."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

STACK_MAX = 12  # frames that a breach noted remembers, the innermost


class ContractBreach(AssertionError):
    """The code under test called a closed kernel outside the kernel's contract: a finding about the caller.

    ``rule`` is a word for which of the argument's rules: different rules are broken by different faults. It is "" for
    what the argument is there for (a page table as wide as the lengths need), and stays once it is given: faults are
    told apart, from release to release, by function, argument and rule.
    """

    def __init__(self, function: str, argument: str, detail: str, request: int | None = None, rule: str = "") -> None:
        self.function = function
        self.argument = argument
        self.detail = detail
        self.request = request
        self.rule = rule
        self.stack = ""  # of a breach that was noted: where
        where = "" if request is None else f" of request {request}"
        super().__init__(f"{function}: {argument}{where}: {detail}")


class StandInGap(NotImplementedError):
    """The code under test uses a feature of a closed kernel that its stand-in does not have: the stand-in is behind."""

    def __init__(self, function: str, argument: str) -> None:
        self.function = function
        self.argument = argument
        super().__init__(f"the stand-in for {function} has no {argument}; extend it in stubs/kernels")


def require(
    condition: bool, function: str, argument: str, detail: str, request: int | None = None, rule: str = ""
) -> None:
    """Raise ContractBreach unless ``condition`` holds. ``request`` is the row of the batch at fault, if one is.

    ``detail`` is text already formatted; where formatting it costs, test first and call with False.
    """
    if not condition:
        raise ContractBreach(function, argument, detail, request, rule)


@dataclass(slots=True)
class _Notes:
    breaches: list[ContractBreach] | None = None


_NOTES = _Notes()


@contextmanager
def noted_in(breaches: list[ContractBreach] | None) -> Iterator[None]:
    """Within, a breach behind which the call's words still have one meaning is put into ``breaches``; None: it is raised."""
    before, _NOTES.breaches = _NOTES.breaches, breaches
    try:
        yield
    finally:
        _NOTES.breaches = before


def note(function: str, argument: str, detail: str, request: int | None = None, rule: str = "") -> None:
    """A breach of what the call itself says plainly and the kernel cannot do: the stand-in goes on as it was told.

    The real kernel does something else. But that is what the breach says, and what else is wrong with the call can be
    seen only in the answer that it asks for. Raises ContractBreach where nobody takes notes.
    """
    breach = ContractBreach(function, argument, detail, request, rule)
    if _NOTES.breaches is None:
        raise breach
    breach.stack = "".join(traceback.format_stack(limit=STACK_MAX))
    _NOTES.breaches.append(breach)


def require_absent(function: str, **arguments: object) -> None:
    """Raise StandInGap for the first argument that is given although the stand-in does not implement it."""
    for name, value in arguments.items():
        if value is not None:
            raise StandInGap(function, name)
