"""Mending: what is left of a sequence of ops when something was taken out of it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fuzz.generate import program_for
from fuzz.ledger import check
from fuzz.limits import Limits
from fuzz.mend import mend
from fuzz.program import Decode, Extend, Finish, Idle, Mixed, Op, Program, Retract, Row, Verify
from stubs.world import World

WORLD = World()
PAGED = World(page_size=4)
CHAIN = World(spec_algorithm="EAGLE", spec_steps=2, spec_topk=1, spec_draft_tokens=3)
ENCODERS = World(encoder_decoder=1, num_layers=2)
RAGGED = World(spec_algorithm="DSPARK", spec_steps=1, spec_topk=1, spec_draft_tokens=4)
FIRST = Extend((Row(0, 5),))
TWO = Extend((Row(0, 5), Row(1, 3)))

CASES: dict[str, tuple[World, tuple[Op, ...], tuple[Op, ...]]] = {
    "steps of unknown requests go": (WORLD, (FIRST, Decode((0, 7)), Finish((7,))), (FIRST, Decode((0,)))),
    "a second prompt of a running request goes": (WORLD, (FIRST, FIRST, Idle()), (FIRST, Idle())),
    "a prompt is cut to the longest": (World(context_len=12), (Extend((Row(0, 9),)),), (Extend((Row(0, 6),)),)),
    "a prefix is cut to what there is": (
        PAGED,
        (FIRST, Extend((Row(1, 2, 0, 8),))),
        (FIRST, Extend((Row(1, 2, 0, 4),))),
    ),
    "a prefix of nobody goes": (PAGED, (Extend((Row(1, 2, 0, 8),)),), (Extend((Row(1, 2),)),)),
    "a chunk is cut to a page": (PAGED, (Extend((Row(0, 6, more=1),)),), (Extend((Row(0, 4, more=1),)),)),
    "a chunk below a page grows to one": (PAGED, (Extend((Row(0, 2, more=1),)),), (Extend((Row(0, 4, more=1),)),)),
    "a chunk that cannot end on a page is the whole": (
        World(page_size=8, context_len=12),
        (Extend((Row(0, 5, more=1),)),),
        (Extend((Row(0, 5),)),),
    ),
    "a chunk before the last row is the whole": (
        WORLD,
        (Extend((Row(0, 2, more=1), Row(1, 1))),),
        (Extend((Row(0, 2), Row(1, 1))),),
    ),
    "extends that pass over the chunk go": (
        WORLD,
        (Extend((Row(0, 2, more=1),)), FIRST, Extend((Row(1, 1),)), Idle()),
        (Extend((Row(0, 2, more=1),)), FIRST, Extend((Row(1, 1),)), Idle()),
    ),
    "extends of others while a chunk waits go": (
        WORLD,
        (Extend((Row(0, 2, more=1),)), Extend((Row(1, 1),)), Idle()),
        (Extend((Row(0, 2, more=1),)), Idle()),
    ),
    "a retracted request comes back as long as it was": (
        WORLD,
        (FIRST, Retract((0,)), Extend((Row(0, 9),))),
        (FIRST, Retract((0,)), Extend((Row(0, 6),))),
    ),
    "mixed without prompts is a decode": (WORLD, (FIRST, Mixed((Row(0, 1),), (0,))), (FIRST, Decode((0,)))),
    "mixed without decodes is an extend": (WORLD, (Mixed((Row(0, 1),), (4,)),), (Extend((Row(0, 1),)),)),
    "mixed under speculation is an extend": (
        CHAIN,
        (FIRST, Mixed((Row(1, 1),), (0,))),
        (FIRST, Extend((Row(1, 1),))),
    ),
    "verify without speculation is a decode": (WORLD, (FIRST, Verify((0,), (3,))), (FIRST, Decode((0,)))),
    "accepts are cut to the depth": (CHAIN, (FIRST, Verify((9, 0), (1, 5))), (FIRST, Verify((0,), (3,)))),
    "no more is verified than is drafted, nor accepted than is verified": (
        RAGGED,
        (TWO, Verify((9, 1, 0), (1, 5, 2), verify_lens=(1, 5, 1))),
        (TWO, Verify((1, 0), (4, 1), verify_lens=(4, 1))),
    ),
    "all that is drafted is verified where a part cannot be": (
        CHAIN,
        (FIRST, Verify((0,), (1,), verify_lens=(1,))),
        (FIRST, Verify((0,), (1,))),
    ),
    "decode under speculation goes": (CHAIN, (FIRST, Decode((0,))), (FIRST,)),
    "encoders go where the world has none": (
        WORLD,
        (Extend((Row(0, 5, encoder=3),)), Decode((0,))),
        (FIRST, Decode((0,))),
    ),
    "an encoder leaves a token": (ENCODERS, (Extend((Row(0, 3, encoder=9),)),), (Extend((Row(0, 3, encoder=2),)),)),
    "an encoder is as its prefix has it": (
        ENCODERS,
        (Extend((Row(0, 5, encoder=3),)), Extend((Row(1, 2, 0, 4, encoder=1), Row(2, 6, 0, 2)))),
        (Extend((Row(0, 5, encoder=3),)), Extend((Row(1, 2, 0, 4, encoder=3), Row(2, 6, encoder=3)))),
    ),
    "one that comes back has the encoder that it had": (
        ENCODERS,
        (Extend((Row(0, 5, encoder=3), Row(1, 5))), Retract((0,)), Extend((Row(0, 6, 1, 4, encoder=1),))),
        (Extend((Row(0, 5, encoder=3), Row(1, 5))), Retract((0,)), Extend((Row(0, 6, encoder=3),))),
    ),
    "chunks and mixed steps are whole where there are encoders": (
        ENCODERS,
        (Extend((Row(0, 5, more=1),)), Mixed((Row(1, 3),), (0,))),
        (FIRST, Extend((Row(1, 3),))),
    ),
    "what the pool cannot hold goes": (
        World(max_total_tokens=16, context_len=64),
        (Extend((Row(0, 9),)), Extend((Row(1, 9),)), Finish((0,))),
        (Extend((Row(0, 9),)), Finish((0,))),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_mending(name: str) -> None:
    world, ops, mended = CASES[name]
    assert mend(world, ops) == mended


@pytest.mark.parametrize("name", CASES)
def test_what_was_mended_is_valid(name: str) -> None:
    world, ops, _ = CASES[name]
    check(Program(world, mend(world, ops)))


def test_a_valid_program_comes_back_as_it_is() -> None:
    programs = [program_for(seed, Limits()) for seed in range(500)]
    assert [p for p in programs if mend(p.world, p.ops) != p.ops] == []


def test_a_program_in_another_ones_world_is_valid() -> None:
    programs = [program_for(seed, Limits()) for seed in range(500)]
    for program, other in pairwise(programs):
        check(Program(other.world, mend(other.world, program.ops)))
