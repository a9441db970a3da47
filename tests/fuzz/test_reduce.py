"""The shrink passes one by one: which candidates each lists, before anything is mended."""

from __future__ import annotations

import pytest

from fuzz import reduce
from fuzz.program import Decode, Extend, Finish, Idle, Mixed, Op, Program, Retract, Row, Verify
from stubs.world import World

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
        reduce.shorten,
        (Extend((Row(1, 4, encoder=2),)),),
        [
            (Extend((Row(1, 1, encoder=2),)),),
            (Extend((Row(1, 1, encoder=2),)),),
            (Extend((Row(1, 3, encoder=2),)),),
            (Extend((Row(1, 2),)),),
            (Extend((Row(1, 4),)),),
            (Extend((Row(1, 3, encoder=1),)),),
            (Extend((Row(1, 4, encoder=1),)),),
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


def test_verifies_of_a_part_become_verifies_of_all_or_of_less() -> None:
    program = Program(World(), (Verify((0, 1), (1, 2), 0, verify_lens=(1, 4)),))
    assert [candidate.ops[0] for candidate in reduce.plain_steps(program)] == [
        Verify((0, 1), (1, 1), 0, verify_lens=(1, 4)),
        Verify((0, 1), (1, 2), 0),
        Verify((0, 1), (1, 2), 0, verify_lens=(1, 4)),
        Verify((0, 1), (1, 1), 0, verify_lens=(1, 4)),
        Verify((0, 1), (1, 2), 0, verify_lens=(1, 2)),
        Verify((0, 1), (1, 2), 0, verify_lens=(1, 3)),
    ]


def test_requests_are_put_in_order_with_and_without_their_accepts() -> None:
    world = World(spec_algorithm="EAGLE", spec_steps=1, spec_topk=1, spec_draft_tokens=2)
    verify = Program(world, (Verify((1, 0), (1, 2)),))
    assert [candidate.ops for candidate in reduce.order_requests(verify)] == [
        (Verify((0, 1), (1, 2)),),
        (Verify((0, 1), (2, 1)),),
    ]
    assert list(reduce.order_requests(Program(world, (Verify((0, 1), (1, 2)),)))) == []
