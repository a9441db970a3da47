"""The one seam for randomness: a seed, fuzzer bytes and exhaustive search all answer the same four questions.

The lowest answer is the simplest everywhere: ``integer`` gives ``low``, ``pick`` and ``weigh`` the first item,
``chance`` False.
So exhausted bytes and the first exhaustive path both end in the plainest thing a generator can make.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Choices(Protocol):
    """What a generator may ask."""

    def integer(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""

    def pick(self, items: Sequence[Item]) -> Item:
        """One of ``items``, which must not be empty."""

    def chance(self, numerator: int, denominator: int) -> bool:
        """True in ``numerator`` of ``denominator`` equally likely cases."""

    def weigh(self, items: Sequence[tuple[int, Item]]) -> Item:
        """The item of one of the (weight, item) pairs, likely in proportion to its weight, which is at least 1."""


class _FromIndex:
    """Answers all four from one question, ``_index(count)``: a number from 0 to count - 1."""

    __slots__ = ()

    def _index(self, count: int) -> int:
        raise NotImplementedError

    def integer(self, low: int, high: int) -> int:
        assert low <= high, f"integer({low}, {high}) is an empty range"
        return low + self._index(high - low + 1)

    def pick(self, items: Sequence[Item]) -> Item:
        assert items, "pick from nothing"
        return items[self._index(len(items))]

    def chance(self, numerator: int, denominator: int) -> bool:
        # The high end is True, so that the lowest answer is False.
        return self._index(denominator) >= denominator - numerator

    def weigh(self, items: Sequence[tuple[int, Item]]) -> Item:
        at = self._index(sum(weight for weight, _ in items))
        for weight, item in items:
            at -= weight
            if at < 0:
                return item
        raise AssertionError("nothing to weigh")


class Seeded(_FromIndex):
    """Pseudo-random choices that a seed repeats on every Python version.

    ``random.random`` alone is used: it is the one method whose sequence Python promises to keep.
    """

    __slots__ = ("_random",)

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def _index(self, count: int) -> int:
        return int(self._random() * count)


class Bytes(_FromIndex):
    """Choices read from a fuzzer's bytes, as many bytes as the range needs; once exhausted, the lowest."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _index(self, count: int) -> int:
        size = ((count - 1).bit_length() + 7) // 8
        taken = self._data[self._at : self._at + size]
        self._at += size
        if len(taken) < size:
            return 0
        return int.from_bytes(taken, "little") % count


class Exhaustive(_FromIndex):
    """Choices that follow ``path`` and then the lowest, and note each choice made and out of how many.

    Chances and weights count for nothing here: each outcome is one branch.
    """

    __slots__ = ("_path", "_taken")

    def __init__(self, path: Sequence[int] = ()) -> None:
        self._path = path
        self._taken: list[tuple[int, int]] = []

    def _index(self, count: int) -> int:
        depth = len(self._taken)
        index = self._path[depth] if depth < len(self._path) else 0
        assert index < count, "the generator asked differently on the same path; it must depend on its choices alone"
        self._taken.append((index, count))
        return index

    def chance(self, numerator: int, denominator: int) -> bool:
        return self._index(2) == 1

    def weigh(self, items: Sequence[tuple[int, Item]]) -> Item:
        return items[self._index(len(items))][1]

    @property
    def taken(self) -> tuple[tuple[int, int], ...]:
        """Each choice so far: its index, out of how many."""
        return tuple(self._taken)

    def next_path(self) -> list[int] | None:
        """The next path in depth-first order, or None after the last."""
        taken = list(self._taken)
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return None
        return [index for index, _ in taken[:-1]] + [taken[-1][0] + 1]


def exhaustive() -> Iterator[Exhaustive]:
    """Yield one ``Exhaustive`` per path through a generator that runs once on each: depth first, last choice first."""
    path: list[int] | None = []
    while path is not None:
        choices = Exhaustive(path)
        yield choices
        path = choices.next_path()
