"""Where a search looks next, on lines of which everything is known beforehand."""

from __future__ import annotations

import pytest

from fuzz.history import changes
from fuzz.revisions.search import PROBES, SKIPS_MAX, next_position

MARKS = {"b": True, "c": False, "?": None}


def search(line: str) -> tuple[list[str], int]:
    """What is found on ``line``, both ends of which are known, and how many positions were tried for it."""
    marks = {0: MARKS[line[0]], len(line) - 1: MARKS[line[-1]]}
    while (position := next_position(marks, len(line))) is not None:
        assert position not in marks
        marks[position] = MARKS[line[position]]
    found = changes([marks.get(position) for position in range(len(line))])
    names = [str(position) for position in range(len(line))]
    return [f"{change.kind} {change.named(names)}" for change in found], len(marks)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("cb", ["introduced 1"]),
        ("bc", ["fixed 1"]),
        ("ccccbbbb", ["introduced 4"]),
        ("cccc?bbb", ["introduced 4..5"]),
        ("c??????b", ["introduced 1..7"]),
        ("c?????bb", ["introduced 1..6"]),
        ("cccbbbcc", ["introduced 3", "fixed 6"]),
        ("ccbb?ccc", ["introduced 2", "fixed 4..5"]),
        ("cbbcccbb", ["introduced 1", "fixed 3", "back again 6"]),
        ("bbbbbbbb", []),
    ],
)
def test_short_line(line: str, found: list[str]) -> None:
    assert search(line)[0] == found


@pytest.mark.parametrize("first", range(1, 40))
def test_every_place_of_an_introduction_is_found(first: int) -> None:
    assert search("c" * first + "b" * (40 - first))[0] == [f"introduced {first}"]


def test_a_thousand_commits_take_some_ten_steps() -> None:
    found, tried = search("c" * 617 + "b" * 383)
    assert (found, tried) == (["introduced 617"], 14)


def test_a_bug_that_came_back_is_seen_where_it_lasted() -> None:
    found, _ = search("c" * 100 + "b" * 300 + "c" * 300 + "b" * 300)
    assert found == ["introduced 100", "fixed 400", "back again 700"]


def test_commits_that_cannot_be_told_are_left_by_leaps() -> None:
    found, tried = search("c" * 480 + "?" * 40 + "c" * 80 + "b" * 400)
    assert (found, tried) == (["introduced 600"], 14)


def test_the_range_that_cannot_be_told_is_closed_in_on() -> None:
    assert search("c" * 560 + "?" * 10 + "b" * 430) == (["introduced 560..570"], 23)


def test_so_many_fail_to_tell_that_the_range_is_the_answer() -> None:
    found, tried = search("c" + "?" * 500 + "b")
    assert found == ["introduced 1..501"]
    assert tried == 2 + SKIPS_MAX
    assert PROBES < SKIPS_MAX
