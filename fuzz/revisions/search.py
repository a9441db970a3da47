"""Where to look next on a line of revisions for the places at which a bug came and went."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

# Looked at before anything is halved, evenly spread: a bug that came, went and came back would else be taken for one
# that came once. They narrow the search as well, so that they cost two or three steps more than halving alone.
PROBES = 4
# In the gap between a revision with the bug and one without it, as many may fail to tell: then the gap is the answer.
SKIPS_MAX = 16


def next_position(marks: Mapping[int, bool | None], count: int) -> int | None:
    """The position to try next, of 0 to ``count`` - 1, or None when there is nothing left that would tell more.

    ``marks``: what the positions tried so far gave: True with the bug, False without it, None where it cannot be told.
    """
    for probe in range(1, PROBES + 1):
        position = probe * (count - 1) // (PROBES + 1)
        if position not in marks:
            return position
    told = sorted(position for position, mark in marks.items() if mark is not None)
    for before, after in pairwise(told):
        gap = range(before + 1, after)
        skipped = sum(position in marks for position in gap)
        if marks[before] != marks[after] and skipped < min(len(gap), SKIPS_MAX):
            return _middle_of_longest([position for position in gap if position not in marks])
    return None


def _middle_of_longest(positions: list[int]) -> int:
    """The middle of the longest run of neighbours: far from what could not be told, whose neighbours cannot either."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and runs[-1][-1] == position - 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    longest = max(runs, key=len)
    return longest[len(longest) // 2]
