"""The tables of comparisons and bisections, as people read them."""

from __future__ import annotations

import pytest
from rich.console import Console

from fuzz.bisection import BisectResult
from fuzz.comparison import Cell, CompareResult, Row, in_order
from fuzz.matrix import bisect_table, compare_notes, compare_table


def printed(table: object) -> list[list[str]]:
    console = Console(width=200, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    return [line.split() for line in captured.get().splitlines()]


def compared(*cells: Cell) -> CompareResult:
    return CompareResult(tuple(cell.target for cell in cells), (Row("repros/a.py", "x/y/z", in_order(cells)),))


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (Cell("a.py", "t0", "bug", 3, 3), "bug 3/3 ≥26 %"),
        (Cell("a.py", "t0", "bug", 6, 20), "bug 6/20 11–56 %"),
        (Cell("a.py", "t0", "clean", 0, 7), "clean 0/7 ≤44 %"),
        (Cell("a.py", "t0", "clean", 0, 7, cached=7), "clean 0/7 ≤44 % *"),
        (Cell("a.py", "t0", "clean", 0, 7, cached=3), "clean 0/7 ≤44 %"),
        (Cell("a.py", "t0", "infra", 0, 0, "no import"), "infra 0/0"),
    ],
)
def test_cell(cell: Cell, words: str) -> None:
    line = printed(compare_table(compared(cell)))[1]
    assert line[: len(words.split()) + 1] == ["a.py", *words.split()]


def test_row_says_what_became_of_the_bug() -> None:
    cells = [Cell("a.py", f"t{number}", state, 0, 0) for number, state in enumerate(("clean", "bug", "clean", "bug"))]
    assert printed(compare_table(compared(*cells)))[1][-6:] == ["t1", "t2", "back", "again", "in", "t3"]


def test_bug_on_all_targets_is_latent() -> None:
    assert printed(compare_table(compared(Cell("a.py", "t0", "bug", 3, 3))))[1][-3:] == ["–", "–", "latent"]


def test_notes_say_why_and_what_was_not_run() -> None:
    clean, lost = Cell("a.py", "t0", "clean", 0, 7, cached=7), Cell("a.py", "t1", "infra", 0, 0, "no\nimport")
    assert compare_notes(compared(clean, lost)) == [
        "t1: infra: no import",
        "* 7 of 7 runs were not made now but taken from the cache (--no-cache makes them)",
    ]


def test_bisection_lists_what_was_tried() -> None:
    cells = (Cell("a.py", "git:/x@1", "clean", 0, 7), Cell("a.py", "git:/x@3", "unsupported", 0, 3, "page size"))
    result = BisectResult("a.py", "x/y/z", ("git:/x@1", "git:/x@2", "git:/x@3"), cells, {"git:/x@1": "1 a subject"})
    assert printed(bisect_table(result)) == [
        ["revision", "state", "shows"],
        ["1", "a", "subject", "clean", "0/7", "≤44", "%"],
        ["git:/x@3", "unsupported", "0/3", "≤74", "%", "page", "size"],
    ]


def test_many_targets_are_told_as_stretches_of_one_state() -> None:
    states = ("clean", "clean", "bug", "bug", "bug", "other", "fixed")
    cells = [Cell("a.py", f"t{number}", state, 3, 3) for number, state in enumerate(states)]
    lines = printed(compare_table(compared(*cells)))
    assert lines[0] == ["repro", "history", "introduced", "in", "fixed", "in"]
    assert lines[1][:5] == ["a.py", "clean", "t0", "to", "t1"]
    assert lines[2:] == [["bug", "t2", "to", "t4"], ["other", "t5"], ["fixed", "t6"]]
