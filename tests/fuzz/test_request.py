"""How long prompts and requests may get, and how many drafts may be accepted."""

from __future__ import annotations

import pytest

from fuzz.request import accept_max, input_max, length_max
from stubs.world import World


@pytest.mark.parametrize(
    ("context_len", "pool", "overlap", "longest_prompt", "longest"),
    [(64, 512, 1, 58, 62), (64, 512, 0, 58, 61), (64, 32, 1, 26, 30)],
)
def test_length_limits(context_len: int, pool: int, overlap: int, longest_prompt: int, longest: int) -> None:
    world = World(context_len=context_len, max_total_tokens=pool, overlap=overlap)
    assert (input_max(world), length_max(world)) == (longest_prompt, longest)


@pytest.mark.parametrize(
    ("steps", "topk", "width", "most"),
    [
        (3, 1, 4, 4),  # a chain: all drafts and the bonus token
        (1, 3, 4, 2),  # one level
        (2, 2, 3, 2),  # two nodes may both be on the first level
        (2, 2, 4, 3),  # three cannot
        (3, 2, 7, 3),  # six may fill two levels, 2 + 4
        (3, 2, 8, 4),  # seven cannot
    ],
)
def test_every_tree_has_a_path_for_what_is_accepted(steps: int, topk: int, width: int, most: int) -> None:
    world = World(spec_algorithm="EAGLE", spec_steps=steps, spec_topk=topk, spec_draft_tokens=width)
    assert accept_max(world) == most
