"""Ledger: which ops SGLang's scheduler could run next, and what requests hold after them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz.ledger import Ledger, check
from fuzz.program import Decode, Extend, Finish, Idle, Mixed, Op, Program, Retract, Row, Verify
from fuzz.request import State
from stubs.world import World

WORLD = World()
PAGED = World(page_size=4)
CHAIN = World(spec_algorithm="EAGLE", spec_steps=2, spec_topk=1, spec_draft_tokens=3)
ENCODERS = World(encoder_decoder=1, num_layers=2)
RAGGED = World(spec_algorithm="DSPARK", spec_steps=1, spec_topk=1, spec_draft_tokens=4)
TINY = World(context_len=12)  # prompts up to 6 tokens, requests up to 10
FIRST = Extend((Row(0, 5),))


def after(world: World, *ops: Op) -> Ledger:
    ledger = Ledger(world)
    for op in ops:
        ledger.apply(op)
    return ledger


ALLOWED: dict[str, tuple[World, tuple[Op, ...]]] = {
    "nothing": (WORLD, ()),
    "idle before all": (WORLD, (Idle(), FIRST)),
    "longest prompt": (TINY, (Extend((Row(0, 6),)),)),
    "up to the limit": (TINY, (Extend((Row(0, 6),)), *[Decode((0,))] * 4)),
    "a row freed": (World(max_running_requests=1), (FIRST, Finish((0,)), Extend((Row(1, 1),)))),
    "chunks": (PAGED, (Extend((Row(0, 4, more=1),)), Extend((Row(0, 8, more=1),)), Extend((Row(0, 3), Row(1, 2))))),
    "decode between chunks": (WORLD, (FIRST, Extend((Row(1, 1, more=1),)), Decode((0,)), Extend((Row(1, 1),)))),
    "chunk ends, another begins": (
        WORLD,
        (Extend((Row(0, 1, more=1),)), Extend((Row(0, 1), Row(1, 2), Row(2, 1, more=1)))),
    ),
    "hit on a running request": (PAGED, (FIRST, Extend((Row(1, 1, 0, 4),)))),
    "hit on a chunk": (PAGED, (Extend((Row(0, 4, more=1),)), Extend((Row(0, 1), Row(1, 2, 0, 4))))),
    "hit on a kept request, output too": (
        WORLD,
        (FIRST, Decode((0,)), Finish((0,), keep=1), Extend((Row(1, 1, 0, 6),))),
    ),
    "retracted comes back": (WORLD, (FIRST, Decode((0,)), Retract((0,)), Extend((Row(0, 7),)), Decode((0,)))),
    "retracted comes back by a hit": (
        WORLD,
        (FIRST, Extend((Row(1, 5),)), Retract((0,)), Extend((Row(0, 2, 1, 4),))),
    ),
    "retracted comes back in chunks": (
        PAGED,
        (FIRST, Retract((0,)), Extend((Row(0, 4, more=1),)), Extend((Row(0, 2),))),
    ),
    "retracted is longer than a prompt may be": (
        TINY,
        (Extend((Row(0, 6),)), Decode((0,)), Retract((0,)), Extend((Row(0, 8),))),
    ),
    "mixed with some of the running": (WORLD, (Extend((Row(0, 1), Row(1, 1))), Mixed((Row(2, 1),), (1,)))),
    "verify": (CHAIN, (FIRST, Verify((0,), (3,)), Verify((0,), (1,), draft_extend=0))),
    "encoders, known and not": (
        ENCODERS,
        (
            Extend((Row(0, 5, encoder=3), Row(1, 2))),
            Decode((0, 1)),
            Retract((0,)),
            Extend((Row(0, 7, encoder=3),)),
            Extend((Row(2, 1, 0, 3, encoder=3), Row(3, 1, 1, 2))),
        ),
    ),
    "verify of a part": (
        RAGGED,
        (Extend((Row(0, 5), Row(1, 3))), Verify((0, 1), (1, 4), 0, verify_lens=(1, 4)), Verify((0,), (4,), 0)),
    ),
    "borrowed pages outlive the lender": (
        World(page_size=4, max_total_tokens=16),
        (Extend((Row(0, 5),)), Extend((Row(1, 1, 0, 4),)), Finish((0,)), Extend((Row(2, 8),))),
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_allowed(name: str) -> None:
    world, ops = ALLOWED[name]
    check(Program(world, ops))


def test_lengths_after_each_kind_of_step() -> None:
    ledger = after(WORLD, FIRST, Extend((Row(1, 2, 0, 3),)), Decode((0, 1)), Mixed((Row(2, 4),), (1,)))
    assert {number: request.length for number, request in ledger.requests.items()} == {0: 6, 1: 7, 2: 4}


def test_verify_commits_what_is_accepted() -> None:
    assert after(CHAIN, FIRST, Verify((0,), (2,))).requests[0].length == 7


def test_verify_reserves_twice_a_step_in_whole_pages() -> None:
    ledger = after(replace(CHAIN, page_size=4), FIRST)
    assert ledger.reserved(0) == 12  # 5 + 2 * 3 = 11, in pages of 4


def test_rejected_slots_stay_reserved_until_the_end() -> None:
    ledger = after(CHAIN, FIRST, Verify((0,), (1,)))
    held = ledger.world.pool_pages - ledger.pages_free
    ledger.apply(Finish((0,)))
    assert (held, ledger.world.pool_pages - ledger.pages_free) == (11, 0)


def test_a_kept_request_holds_whole_pages_alone() -> None:
    ledger = after(PAGED, Extend((Row(0, 6),)), Finish((0,), keep=1))
    assert (ledger.pages_free, ledger.cacheable(0), ledger.rows_free) == (127, 4, 4)


def test_a_kept_request_below_a_page_is_gone() -> None:
    assert after(PAGED, Extend((Row(0, 3),)), Finish((0,), keep=1)).requests[0].state is State.GONE


def test_a_retracted_request_holds_nothing() -> None:
    ledger = after(PAGED, FIRST, Retract((0,)))
    assert (ledger.pages_free, ledger.rows_free, ledger.requests[0].owed) == (128, 4, 6)


def test_a_shared_page_counts_once() -> None:
    ledger = after(PAGED, Extend((Row(0, 8),)), Extend((Row(1, 1, 0, 8),)))
    assert ledger.pages_free == 125  # two shared, one of its own
