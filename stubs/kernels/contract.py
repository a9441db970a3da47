"""How a stand-in for a closed kernel refuses a call: which function, which argument, whose request, which numbers."""

from __future__ import annotations


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


def require_absent(function: str, **arguments: object) -> None:
    """Raise StandInGap for the first argument that is given although the stand-in does not implement it."""
    for name, value in arguments.items():
        if value is not None:
            raise StandInGap(function, name)
