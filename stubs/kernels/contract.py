"""How a stand-in for a closed kernel refuses a call: which function, which argument, whose request, which numbers."""

from __future__ import annotations


class ContractBreach(AssertionError):
    """The code under test called a closed kernel outside the kernel's contract: a finding about the caller."""

    def __init__(self, function: str, argument: str, detail: str, request: int | None = None) -> None:
        self.function = function
        self.argument = argument
        self.detail = detail
        self.request = request
        where = "" if request is None else f" of request {request}"
        super().__init__(f"{function}: {argument}{where}: {detail}")


class StandInGap(NotImplementedError):
    """The code under test uses a feature of a closed kernel that its stand-in does not have: the stand-in is behind."""

    def __init__(self, function: str, argument: str) -> None:
        self.function = function
        self.argument = argument
        super().__init__(f"the stand-in for {function} has no {argument}; extend it in stubs/kernels")


def require(condition: bool, function: str, argument: str, detail: str, request: int | None = None) -> None:
    """Raise ContractBreach unless ``condition`` holds. ``request`` is the row of the batch at fault, if one is.

    ``detail`` is text already formatted; where formatting it costs, test first and call with False.
    """
    if not condition:
        raise ContractBreach(function, argument, detail, request)


def require_absent(function: str, **arguments: object) -> None:
    """Raise StandInGap for the first argument that is given although the stand-in does not implement it."""
    for name, value in arguments.items():
        if value is not None:
            raise StandInGap(function, name)
