"""The shrink passes one by one: which candidates each lists, before anything is mended."""

from __future__ import annotations

import pytest

from fuzz import reduce
from fuzz.program import Decode, Extend, Finish, Idle, Mixed, Op, Program, Retract, Row, Verify
from stubs.world import World

CHAIN = World(spec_algorithm="EAGLE", spec_steps=2, spec_topk=1, spec_draft_tokens=3)
FIRST = Extend((Row(0, 5),))

# pass, ops, the ops of its candidates in order
LISTED: list[tuple[reduce.Pass, tuple[Op, ...], list[tuple[Op, ...]]]] = [
    (
        reduce.drop_trailing_ops,
        (Idle(), FIRST, Idle(), FIRST),
        [(), (Idle(), FIRST), (Idle(), FIRST, Idle())],
    ),
    (
        reduce.drop_op_ranges,
        (Idle(), FIRST, Decode((0,))),
        [(Idle(), FIRST), (Idle(), Decode((0,))), (FIRST, Decode((0,)))],
    ),
    (
        reduce.drop_requests,
        (FIRST, Extend((Row(1, 2, 0, 4),)), Decode((0, 1))),
        [
            (Extend((Row(1, 6),)), Decode((1,))),
            (Extend((Row(1, 2),)), Decode((1,))),
            (FIRST, Decode((0,))),
            (FIRST, Decode((0,))),
        ],
    ),
    (
        reduce.drop_rows,
        (Verify((0, 1), (2, 3)), Mixed((Row(2, 1),), (0,))),
        [
            (Verify((1,), (3,)), Mixed((Row(2, 1),), (0,))),
            (Verify((0,), (2,)), Mixed((Row(2, 1),), (0,))),
            (Verify((0, 1), (2, 3)), Decode((0,))),
            (Verify((0, 1), (2, 3)), Extend((Row(2, 1),))),
        ],
    ),
    (
        reduce.split_mixed,
        (Mixed((Row(1, 2),), (0,)),),
        [(Decode((0,)),), (Extend((Row(1, 2),)),)],
    ),
    (
        reduce.join_chunks,
        (Extend((Row(0, 4, more=1),)), Idle(), Mixed((Row(0, 3), Row(1, 1)), (2,))),
        [
            (Extend((Row(0, 7),)), Idle(), Mixed((Row(1, 1),), (2,))),
            (Extend((Row(0, 4),)), Idle(), Mixed((Row(0, 3), Row(1, 1)), (2,))),
        ],
    ),
    (
        reduce.join_extends,
        (FIRST, Extend((Row(1, 2),)), Idle(), Extend((Row(2, 1),))),
        [(Extend((Row(0, 5), Row(1, 2))), Idle(), Extend((Row(2, 1),)))],
    ),
    (
        reduce.fold_steps,
        (FIRST, Verify((0,), (3,)), Finish((0,))),
        [(Extend((Row(0, 8),)), Finish((0,)))],
    ),
    (
        reduce.drop_prefixes,
        (Extend((Row(1, 2, 0, 4),)),),
        [(Extend((Row(1, 2),)),), (Extend((Row(1, 6),)),)],
    ),
    (
        reduce.shorten,
        (Extend((Row(1, 5, 0, 3),)),),
        [
            (Extend((Row(1, 1, 0, 3),)),),
            (Extend((Row(1, 1, 0, 3),)),),
            (Extend((Row(1, 3, 0, 3),)),),
            (Extend((Row(1, 4, 0, 3),)),),
            (Extend((Row(1, 5, 0, 1),)),),
            (Extend((Row(1, 5, 0, 2),)),),
        ],
    ),
    (
        reduce.plain_steps,
        (Verify((0,), (2,)), Finish((0,), keep=1)),
        [
            (Verify((0,), (1,)), Finish((0,), keep=1)),
            (Verify((0,), (2,), draft_extend=0), Finish((0,), keep=1)),
            (Verify((0,), (1,)), Finish((0,), keep=1)),
            (Verify((0,), (2,)), Finish((0,))),
        ],
    ),
    (
        reduce.renumber,
        (Extend((Row(7, 5),)), Extend((Row(3, 1, 7, 2),)), Retract((3,)), Verify((7,), (1,))),
        [(FIRST, Extend((Row(1, 1, 0, 2),)), Retract((1,)), Verify((0,), (1,)))],
    ),
]


@pytest.mark.parametrize(("one", "ops", "listed"), LISTED, ids=[one.__name__ for one, _, _ in LISTED])
def test_a_pass_lists_its_candidates(one: reduce.Pass, ops: tuple[Op, ...], listed: list[tuple[Op, ...]]) -> None:
    assert [candidate.ops for candidate in one(Program(World(), ops))] == listed


def test_seeds_that_are_tried() -> None:
    assert [candidate.seed for candidate in reduce.zero_seed(Program(World(), (), seed=99))] == [0, 1, 2]


def test_the_plainest_world_is_tried_first() -> None:
    world = World(prefill="fa3", decode="flex", runner="real", page_size=8, overlap=0, logit_cap=30, layout="shuffled")
    first = next(iter(reduce.plain_world(Program(world, ()))))
    assert first.world == World(prefill="fa3", decode="flex", runner="real")


def test_a_plain_world_that_still_speculates_is_tried_next() -> None:
    candidates = list(reduce.plain_world(Program(World(**{**CHAIN.to_json(), "page_size": 8}), ())))
    assert candidates[1].world == CHAIN


def test_a_world_is_made_plain_field_by_field() -> None:
    worlds = [candidate.world for candidate in reduce.plain_world(Program(World(page_size=8, num_layers=2), ()))]
    assert World(page_size=8) in worlds and World(num_layers=2) in worlds and World(page_size=2, num_layers=2) in worlds


def test_a_smaller_page_keeps_the_pool_whole() -> None:
    world = World(page_size=8, max_total_tokens=24)
    assert World(page_size=4, max_total_tokens=24) in [c.world for c in reduce.plain_world(Program(world, ()))]


def test_a_tree_may_become_a_chain() -> None:
    tree = World(spec_algorithm="EAGLE", spec_steps=2, spec_topk=2, spec_draft_tokens=5)
    assert CHAIN in [candidate.world for candidate in reduce.plain_world(Program(tree, ()))]


def test_every_pass_stands_in_the_tuple_once() -> None:
    assert [one.__name__ for one in reduce.PASSES] == [
        "drop_trailing_ops",
        "drop_op_ranges",
        "drop_requests",
        "drop_rows",
        "split_mixed",
        "join_chunks",
        "join_extends",
        "fold_steps",
        "drop_prefixes",
        "shorten",
        "plain_steps",
        "plain_world",
        "zero_seed",
        "renumber",
        "order_requests",
    ]


def test_requests_are_put_in_order_with_and_without_their_accepts() -> None:
    world = World(spec_algorithm="EAGLE", spec_steps=1, spec_topk=1, spec_draft_tokens=2)
    verify = Program(world, (Verify((1, 0), (1, 2)),))
    assert [candidate.ops for candidate in reduce.order_requests(verify)] == [
        (Verify((0, 1), (1, 2)),),
        (Verify((0, 1), (2, 1)),),
    ]
    assert list(reduce.order_requests(Program(world, (Verify((0, 1), (1, 2)),)))) == []


def test_what_a_corpus_drafts_becomes_what_eagle_drafts_or_less() -> None:
    world = World(spec_algorithm="NGRAM", spec_steps=2, spec_topk=2, spec_draft_tokens=4)
    program = Program(world, (Extend((Row(0, 2),)), Verify((0,), (1,))))
    spec = [
        (one.spec_algorithm, one.spec_steps, one.spec_topk, one.spec_draft_tokens)
        for one in (variant.world for variant in reduce.plain_world(program))
    ]
    wanted = [("EAGLE", 3, 1, 4), ("EAGLE", 1, 2, 4), ("NGRAM", 4, 1, 4), ("NGRAM", 1, 2, 2), ("NGRAM", 1, 2, 3)]
    assert spec[-len(wanted) :] == wanted


def test_a_block_becomes_a_chain_or_shorter() -> None:
    world = World(spec_algorithm="DFLASH", spec_steps=1, spec_topk=1, spec_draft_tokens=4)
    program = Program(world, (Extend((Row(0, 2),)), Verify((0,), (1,))))
    spec = [
        (one.world.spec_algorithm, one.world.spec_steps, one.world.spec_draft_tokens)
        for one in reduce.plain_world(program)
    ]
    assert spec[-3:] == [("EAGLE", 3, 4), ("DFLASH", 1, 2), ("DFLASH", 1, 3)]
