"""One thing about a world changed: what comes of it could have been drawn, and has most in common with what was."""

from __future__ import annotations

from dataclasses import fields

import pytest

from fuzz.choice import Choices, Exhaustive, Seeded
from fuzz.generate import program_for
from fuzz.limits import Limits
from fuzz.redraw import redrawn, steered
from fuzz.worlds import draw_world
from stubs.world import World

PAIR = "triton:fa3"
WORLDS = [program_for(seed, Limits(pairs=(PAIR,))).world for seed in range(30)]


def draw(choices: Choices) -> World:
    return draw_world(choices, PAIR, "fake", "cpu", {})


def two_things(choices: Choices) -> World:
    """Pages of 1, or pages of 4 or 8 and then more is asked; after that a number of heads."""
    page = choices.pick((4, 8)) if choices.chance(1, 2) else 1
    return World(page_size=page, num_heads=choices.pick((1, 2, 4)))


def differing(one: World, other: World) -> set[str]:
    return {field.name for field in fields(World) if getattr(one, field.name) != getattr(other, field.name)}


@pytest.mark.parametrize(("page", "heads", "path"), [(1, 1, [0, 0]), (1, 4, [0, 2]), (8, 2, [1, 1, 1])])
def test_choices_behind_a_world_are_found(page: int, heads: int, path: list[int]) -> None:
    assert steered(World(page_size=page, num_heads=heads), two_things, []) == path


def test_choices_lead_to_the_nearest_where_a_world_cannot_be_drawn() -> None:
    assert steered(World(page_size=16, num_heads=2), two_things, []) == [1, 1, 1]


def test_choices_behind_most_drawn_worlds_are_found() -> None:
    assert sum(draw(Exhaustive(steered(world, draw, []))) == world for world in WORLDS) >= 15


@pytest.mark.parametrize("seed", range(8))
def test_what_is_asked_behind_the_changed_choice_is_answered_as_before(seed: int) -> None:
    changed = differing(
        redrawn(Seeded(seed), World(page_size=8, num_heads=2), two_things), World(page_size=8, num_heads=2)
    )
    assert changed & {"page_size", "num_heads"} in ({"page_size"}, {"num_heads"})


def test_redrawn_world_is_another_that_a_server_could_be_started_with() -> None:
    counts = []
    for seed, world in enumerate(WORLDS):
        other = redrawn(Seeded(seed), world, draw)
        other.check()
        assert other.pair == PAIR
        counts.append(len(differing(other, world)))
    assert min(counts) == 1
    assert sum(count <= 3 for count in counts) > 20  # a pool that has to grow with a context, say
