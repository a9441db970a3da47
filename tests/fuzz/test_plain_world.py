"""The shrink pass over a program's world: which worlds it lists, before anything is mended."""

from __future__ import annotations

from fuzz.plain_world import plain_world
from fuzz.program import Extend, Program, Row, Verify
from stubs.world import World

CHAIN = World(spec_algorithm="EAGLE", spec_steps=2, spec_topk=1, spec_draft_tokens=3)


def test_the_plainest_world_is_tried_first() -> None:
    world = World(prefill="fa3", decode="flex", runner="real", page_size=8, overlap=0, logit_cap=30, layout="shuffled")
    first = next(iter(plain_world(Program(world, ()))))
    assert first.world == World(prefill="fa3", decode="flex", runner="real")


def test_a_plain_world_that_still_speculates_is_tried_next() -> None:
    candidates = list(plain_world(Program(World(**{**CHAIN.to_json(), "page_size": 8}), ())))
    assert candidates[1].world == CHAIN


def test_a_world_is_made_plain_field_by_field() -> None:
    worlds = [candidate.world for candidate in plain_world(Program(World(page_size=8, num_layers=2), ()))]
    assert World(page_size=8) in worlds and World(num_layers=2) in worlds and World(page_size=2, num_layers=2) in worlds


def test_linear_layers_become_fewer_then_none_and_go_with_their_wrapper() -> None:
    world = World(wrapper="linear", linear_before=3, num_layers=2)
    worlds = [candidate.world for candidate in plain_world(Program(world, ()))]
    for simpler in (
        World(wrapper="linear", linear_before=1, num_layers=2),
        World(wrapper="linear", num_layers=2),
        World(num_layers=2),
    ):
        assert simpler in worlds


def test_a_smaller_page_keeps_the_pool_whole() -> None:
    world = World(page_size=8, max_total_tokens=24)
    assert World(page_size=4, max_total_tokens=24) in [c.world for c in plain_world(Program(world, ()))]


def test_a_tree_may_become_a_chain() -> None:
    tree = World(spec_algorithm="EAGLE", spec_steps=2, spec_topk=2, spec_draft_tokens=5)
    assert CHAIN in [candidate.world for candidate in plain_world(Program(tree, ()))]


def test_what_a_corpus_drafts_becomes_what_eagle_drafts_or_less() -> None:
    world = World(spec_algorithm="NGRAM", spec_steps=2, spec_topk=2, spec_draft_tokens=4)
    program = Program(world, (Extend((Row(0, 2),)), Verify((0,), (1,))))
    spec = [
        (one.spec_algorithm, one.spec_steps, one.spec_topk, one.spec_draft_tokens)
        for one in (variant.world for variant in plain_world(program))
    ]
    wanted = [("EAGLE", 3, 1, 4), ("EAGLE", 1, 2, 4), ("NGRAM", 4, 1, 4), ("NGRAM", 1, 2, 2), ("NGRAM", 1, 2, 3)]
    assert spec[-len(wanted) :] == wanted


def test_a_block_becomes_a_chain_or_shorter() -> None:
    world = World(spec_algorithm="DFLASH", spec_steps=1, spec_topk=1, spec_draft_tokens=4)
    program = Program(world, (Extend((Row(0, 2),)), Verify((0,), (1,))))
    spec = [
        (one.world.spec_algorithm, one.world.spec_steps, one.world.spec_draft_tokens) for one in plain_world(program)
    ]
    assert spec[-3:] == [("EAGLE", 3, 4), ("DFLASH", 1, 2), ("DFLASH", 1, 3)]


def test_a_block_of_which_a_part_is_verified_becomes_one_that_is_verified_whole() -> None:
    world = World(spec_algorithm="DSPARK", spec_steps=1, spec_topk=1, spec_draft_tokens=3)
    spec = [(one.world.spec_algorithm, one.world.spec_draft_tokens) for one in plain_world(Program(world, ()))]
    assert spec[-3:] == [("EAGLE", 3), ("DFLASH", 3), ("DSPARK", 2)]


def test_chunks_stay_whole_pages_while_pages_change() -> None:
    program = Program(World(page_size=4, attention_chunk_size=12), ())
    worlds = [candidate.world for candidate in plain_world(program)]
    assert {world.attention_chunk_size for world in worlds if world.page_size == 4} == {0, 4, 8, 12}
    assert all(world.attention_chunk_size % world.page_size == 0 for world in worlds)
