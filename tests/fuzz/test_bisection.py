"""What a search says it has found: in words, as an exit status, as JSON."""

from __future__ import annotations

import pytest

from fuzz.bisection import BisectResult
from fuzz.comparison import Cell

STATES = {"c": ("clean", 0, 7, ""), "b": ("bug", 3, 3, ""), "u": ("unsupported", 0, 3, "page size"),
          "s": ("unsure", 0, 60, "too few")}  # fmt: skip


def result(letters: str, refusal: str = "") -> BisectResult:
    """Revisions r0, r1, ...; a dot was not tried."""
    line = tuple(f"r{number}" for number in range(len(letters)))
    tried = ((target, *STATES[letter]) for target, letter in zip(line, letters, strict=True) if letter != ".")
    cells = tuple(Cell("a.py", target, state, k, n, detail) for target, state, k, n, detail in tried)
    return BisectResult("a.py", "x/y/z", line, cells, {"r0": "r0 the oldest"}, refusal)


@pytest.mark.parametrize(
    ("letters", "answers", "exit_code"),
    [
        ("c.cb.b", ["introduced in r3", "not fixed in r5"], 0),
        ("b.bc.c", ["introduced in or before r0 the oldest", "fixed in r3"], 0),
        ("cbc", ["introduced in r1", "fixed in r2"], 0),
        ("cbcb", ["introduced in r1", "fixed in r2", "back again in r3", "not fixed in r3"], 0),
        ("b.b", ["introduced in or before r0 the oldest", "not fixed in r2"], 0),
        ("cub", ["introduced in one of r1 .. r2 (cannot tell: unsupported: page size)", "not fixed in r2"], 125),
        (
            "bsc",
            ["introduced in or before r0 the oldest", "fixed in one of r1 .. r2 (cannot tell: unsure: too few)"],
            125,
        ),
        ("ubc", ["introduced in or before r1 (cannot tell: unsupported: page size)", "fixed in r2"], 125),
        ("cbu", ["introduced in r1", "not fixed in r1 (cannot tell: unsupported: page size)"], 125),
        ("ucbc", ["introduced in r2", "fixed in r3"], 0),
        ("cc", ["cannot tell: the bug shows on none of them"], 125),
        ("uu", ["cannot tell: the bug shows on none of them"], 125),
    ],
)
def test_answers(letters: str, answers: list[str], exit_code: int) -> None:
    found = result(letters)
    assert (found.answers, found.exit_code) == (answers, exit_code)


def test_refusal_is_the_whole_answer() -> None:
    found = result("cb", "r1 was given as bad")
    assert (found.answers, found.exit_code) == (["cannot tell: r1 was given as bad"], 125)


def test_json() -> None:
    data = result("c.bu.cb").to_json()
    assert (data["revisions"], len(data["steps"]), data["exit_code"]) == (7, 5, 125)
    assert (data["introduced_in"], data["fixed_in"]) == ("r1..r2", "r3..r5")
    assert data["changes"] == [
        {"kind": "introduced", "first": "r1", "last": "r2"},
        {"kind": "fixed", "first": "r3", "last": "r5"},
        {"kind": "back again", "first": "r6", "last": "r6"},
    ]
