"""Changes one thing about a world: finds the choices that draw it, makes one of them otherwise, and draws again.

What comes of it is a world that could have been drawn, whatever rules its drawing keeps to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from fuzz.choice import Choices, Exhaustive
from stubs.world import World

CHOICES_MAX = 128  # a world takes some forty; a bound on the search, should there be more one day
ROUNDS = 2
TRIES = 8  # a choice made otherwise may change nothing: the value that it is of is overruled later

Draw = Callable[[Choices], World]


def redrawn(choices: Choices, world: World, draw: Draw) -> World:
    """``world`` with one of its choices made otherwise; one drawn anew where ``draw`` cannot give ``world``."""
    path = path_to(world, draw)
    for _ in range(TRIES if path is not None else 0):
        assert path is not None
        other = _with_one_changed(choices, path, draw)
        if other != world:
            return other
    return draw(choices)


def path_to(world: World, draw: Draw) -> list[int] | None:
    """The choices with which ``draw`` gives ``world``, None if that fails.

    One after the other each is made so that what comes out is nearest to it, the first time round with the lowest of all
    that is behind, then once more with what was found.
    """
    path: list[int] = []
    for _ in range(ROUNDS):
        at = 0
        while at < CHOICES_MAX:
            walk = _Following(path)
            if draw(walk) == world:
                return [index for index, _ in walk.taken]
            if at == len(walk.taken):
                break
            path = _nearest(world, draw, path, at, walk.taken[at][1])
            at += 1
    return None


def _nearest(world: World, draw: Draw, path: list[int], at: int, count: int) -> list[int]:
    """``path`` with the best choice at ``at``: of equals what is there already, else the lowest."""
    kept = path[at] if at < len(path) else 0
    others = [[*path[:at], index, *path[at + 1 :]] for index in (kept, *range(count))]
    return max(others, key=lambda other: _likeness(draw(_Following(other)), world))


def _with_one_changed(choices: Choices, path: list[int], draw: Draw) -> World:
    walk = Exhaustive(path)
    draw(walk)
    at = choices.pick([place for place, (_, count) in enumerate(walk.taken) if count > 1])
    index, count = walk.taken[at]
    other = choices.integer(0, count - 2)
    other += other >= index
    # What follows stays, as far as it is asked for and still is one of the choices.
    return draw(_Following([*path[:at], other, *path[at + 1 :]]))


class _Following(Exhaustive):
    """Choices along a path that may have been another draw's: an index that is too high here is the highest."""

    __slots__ = ()

    def _index(self, count: int) -> int:
        depth = len(self._taken)
        if depth < len(self._path) and self._path[depth] >= count:
            self._path = [*self._path[:depth], count - 1, *self._path[depth + 1 :]]
        return super()._index(count)


def _likeness(ours: World, theirs: World) -> float:
    """How much two worlds have in common: equal fields, then fields that both leave plain or both do not, then sizes."""
    return sum(_nearness(getattr(ours, f.name), getattr(theirs, f.name), f.default) for f in fields(World))


def _nearness(ours: object, theirs: object, plain: object) -> float:
    if ours == theirs:
        return 4.0
    if (ours == plain) != (theirs == plain):
        return 0.0
    return 1.0 + (1 / (1 + abs(ours - theirs)) if isinstance(ours, int) and isinstance(theirs, int) else 0.0)
