"""What a campaign's out folder says of what its programs are drawn from."""

from __future__ import annotations

import pytest

from fuzz.sealed import SealError, sealed
from fuzz.terms import Terms

TERMS = Terms(
    {"seed": 0}, ("triton:fa3", "fa3:triton"), {"triton:fa3": {"prefill": 4, "decode": 1}, "fa3:triton": {}}, "9.1"
)


def test_round_trip_keeps_the_order() -> None:
    again = Terms.from_line(TERMS.to_line())
    assert again == TERMS
    assert list(again.speculative) == ["triton:fa3", "fa3:triton"]
    assert list(again.speculative["triton:fa3"]) == ["prefill", "decode"]


@pytest.mark.parametrize("line", ["", sealed({"asked": {}}), TERMS.to_line().replace("9.1", "9.2")])
def test_anything_else_is_refused(line: str) -> None:
    with pytest.raises(SealError):
        Terms.from_line(line)
