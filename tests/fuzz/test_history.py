"""When a bug came and went, told from a line of revisions."""

from __future__ import annotations

import pytest

from fuzz.history import changes

MARKS = {"b": True, "c": False, "?": None}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ccc", []),
        ("bbb", []),
        ("???", []),
        ("", []),
        ("ccbb", ["introduced 2"]),
        ("bbcc", ["fixed 2"]),
        ("cbbc", ["introduced 1", "fixed 3"]),
        ("c??b", ["introduced 1..3"]),
        ("?cb?c?", ["introduced 2", "fixed 3..4"]),
        ("cbcb", ["introduced 1", "fixed 2", "back again 3"]),
        ("bc?b", ["fixed 1", "back again 2..3"]),
        ("b?b", []),
        ("cbcbc", ["introduced 1", "fixed 2", "back again 3", "fixed 4"]),
    ],
)
def test_changes(line: str, told: list[str]) -> None:
    names = [str(position) for position in range(len(line))]
    found = changes([MARKS[mark] for mark in line])
    assert [f"{change.kind} {change.named(names)}" for change in found] == told


def test_only_a_change_in_one_revision_is_exact() -> None:
    assert [change.is_exact for change in changes([False, None, True, False])] == [False, True]
