"""Changes one thing about a world: finds the choices that draw it, makes one of them otherwise, and draws again.

What comes of it is a world that could have been drawn, whatever rules its drawing keeps to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from fuzz.choice import Choices, Exhaustive
from stubs.world import World

CHOICES_MAX = 128  # a world takes some forty; a bound on the search, should there be more one day
TRIES = 8  # a choice made otherwise may change nothing: the value that it is of is overruled later

Draw = Callable[[Choices], World]
_FIELDS = tuple((field.name, field.default) for field in fields(World))


def redrawn(choices: Choices, world: World, draw: Draw) -> World:
    """``world`` with one of its choices made otherwise, and all behind it so that as much as may be stays as it is.

    ``draw`` need not be able to give ``world`` itself: then one of those nearest to it is changed.
    """
    path = steered(world, draw, [])
    for _ in range(TRIES):
        walk = Exhaustive(path)
        draw(walk)
        at = choices.pick([place for place, (_, count) in enumerate(walk.taken) if count > 1])
        index, count = walk.taken[at]
        other = choices.integer(0, count - 2)
        other += other >= index
        found = draw(Exhaustive(steered(world, draw, [*path[:at], other])))
        if found != world:
            return found
    return draw(choices)


def steered(world: World, draw: Draw, begun: list[int]) -> list[int]:
    """Choices that go on from those ``begun`` and end in what is nearest to ``world``, as far as one look ahead tells.

    Each is made so that the world is nearest when all behind it are the lowest; of equals the lowest is taken.
    """
    path = list(begun)
    while len(path) < CHOICES_MAX:
        walk = Exhaustive(path)
        if draw(walk) == world or len(path) == len(walk.taken):
            return [index for index, _ in walk.taken]
        count = walk.taken[len(path)][1]
        path.append(max(range(count), key=lambda index: (likeness(draw(Exhaustive([*path, index])), world), -index)))
    return path


def likeness(ours: World, theirs: World) -> float:
    """How much two worlds have in common: equal fields, then fields that both leave plain or neither, then sizes."""
    return sum(_nearness(getattr(ours, name), getattr(theirs, name), plain) for name, plain in _FIELDS)


def _nearness(ours: object, theirs: object, plain: object) -> float:
    if ours == theirs:
        return 4.0
    if (ours == plain) != (theirs == plain):
        return 0.0
    return 1.0 + (1 / (1 + abs(ours - theirs)) if isinstance(ours, int) and isinstance(theirs, int) else 0.0)
