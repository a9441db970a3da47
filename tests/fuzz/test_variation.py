"""Variations of programs: always valid, within limits, never the program they are of, and each change does what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.choice import Seeded
from fuzz.extent import tokens_of
from fuzz.generate import program_for
from fuzz.ledger import Ledger, check
from fuzz.limits import Limits
from fuzz.program import Decode, Extend, Finish, Idle, Op, Program, Retract, Row, Verify
from fuzz.variation import VARIATIONS, Varier, fitted, vary
from stubs.world import World

LIMITS = Limits(pairs=("triton:fa3", "fa3:triton", "flashinfer:triton"))
PLAIN = World(prefill="triton", decode="fa3")
DRAFTS = replace(PLAIN, spec_algorithm="EAGLE", spec_steps=2, spec_topk=1, spec_draft_tokens=3)
SEEDS = st.integers(0, 1 << 30)


class Scripted:
    """Choices that are given beforehand: the index of each answer."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)

    def integer(self, low: int, high: int) -> int:
        return low + self.answers.pop(0)

    def pick(self, items: Any) -> Any:
        return items[self.answers.pop(0)]

    def chance(self, numerator: int, denominator: int) -> bool:
        return bool(self.answers.pop(0))

    def weigh(self, items: Any) -> Any:
        return items[self.answers.pop(0)][1]


def varied(change: Any, program: Program, *answers: int, other: Program | None = None) -> tuple[Op, ...]:
    varier = Varier(Scripted(*answers), other or program, LIMITS)
    return fitted(change(varier, program), LIMITS).ops


PROMPT, STEP = Extend((Row(0, 3),)), Decode((0,))
PROGRAM = Program(PLAIN, (PROMPT, STEP, Finish((0,))))


@settings(max_examples=60, deadline=None)
@given(SEEDS, SEEDS, SEEDS)
def test_variation_is_another_valid_program_of_the_pair(seed: int, one: int, two: int) -> None:
    program, other = program_for(one, LIMITS), program_for(two, LIMITS)
    for step in range(4):
        variation = vary(Seeded(seed + step), program, other, LIMITS)
        check(variation)
        assert variation != program
        assert variation.world.pair == program.world.pair
        program = variation


@settings(max_examples=25, deadline=None)
@given(SEEDS, SEEDS)
def test_variation_stays_a_program_of_seconds(seed: int, one: int) -> None:
    program = program_for(one, LIMITS)
    for step in range(8):
        program = vary(Seeded(seed + step), program, program_for(one + step, LIMITS), LIMITS)
    assert len(program.ops) <= 28
    assert sum(tokens_of(op, program.world) for op in program.ops) <= 300


@settings(max_examples=25, deadline=None)
@given(SEEDS, SEEDS)
def test_no_verify_reserves_more_than_a_row_has(seed: int, one: int) -> None:
    program = vary(Seeded(seed), program_for(one, LIMITS), program_for(one + 1, LIMITS), LIMITS)
    ledger, width = Ledger(program.world), program.world.context_len + 4 + program.world.spec_draft_tokens
    for op in program.ops:
        if isinstance(op, Verify):
            assert max(ledger.reserved(number) for number in op.requests) <= width
        ledger.apply(op)


def test_same_choices_give_the_same_variation() -> None:
    one, two = (vary(Seeded(5), program_for(1, LIMITS), program_for(2, LIMITS), LIMITS) for _ in range(2))
    assert one == two


@pytest.mark.parametrize("ops", [(), (Idle(),), (PROMPT,)])
def test_smallest_programs_have_variations(ops: tuple[Op, ...]) -> None:
    program = Program(PLAIN, ops)
    variations = {vary(Seeded(seed), program, program, LIMITS).text for seed in range(20)}
    assert len(variations) > 5
    assert program.text not in variations


def test_generated_programs_fit_as_they_are() -> None:
    programs = [program_for(seed, LIMITS) for seed in range(200)]
    assert sum(fitted(program, LIMITS) == program for program in programs) >= 195


def test_every_change_is_drawn() -> None:
    names = {change.__name__ for _, change in VARIATIONS}
    methods = {name for name in vars(Varier) if not name.startswith("_")}
    assert names == methods


def test_drop() -> None:
    assert varied(Varier.drop, PROGRAM, 1) == (PROMPT, Finish((0,)))


def test_what_hangs_on_a_dropped_op_goes_with_it() -> None:
    assert varied(Varier.drop, PROGRAM, 0) == ()


def test_repeat_of_two_ops() -> None:
    program = Program(PLAIN, (PROMPT, STEP, Idle()))
    assert varied(Varier.repeat, program, 1, 1) == (PROMPT, STEP, Idle(), STEP, Idle())


def test_swap_of_neighbours() -> None:
    program = Program(PLAIN, (PROMPT, STEP, Idle()))
    assert varied(Varier.swap, program, 1, 1) == (PROMPT, Idle(), STEP)


def test_splice_with_our_requests() -> None:
    other = Program(PLAIN, (Extend((Row(0, 9),)), Retract((0,)), Extend((Row(0, 10),))))
    # After our first op, the other's from its second on; not renumbered. What comes back extends by what it owes.
    spliced = varied(Varier.splice, PROGRAM, 0, 1, 0, other=other)
    assert spliced == (PROMPT, Retract((0,)), Extend((Row(0, 4),)))


def test_splice_with_requests_of_its_own() -> None:
    other = Program(PLAIN, (Extend((Row(0, 9),)), Decode((0,))))
    spliced = varied(Varier.splice, PROGRAM, 0, 0, 1, other=other)
    assert spliced == (PROMPT, Extend((Row(1, 9),)), Decode((1,)))


def test_decodes_of_a_plain_program_are_verified_where_there_are_drafts() -> None:
    plain = Program(PLAIN, (PROMPT, STEP))
    spliced = varied(Varier.splice, Program(DRAFTS, (PROMPT,)), 0, 1, 0, other=plain)
    assert spliced == (PROMPT, Verify((0,), (1,), 1))


def test_stretch_of_a_prompt_by_one() -> None:
    assert varied(Varier.stretch, PROGRAM, 0, 1) == (Extend((Row(0, 4),)), STEP, Finish((0,)))


def test_stretch_of_what_a_verify_accepts() -> None:
    program = Program(DRAFTS, (PROMPT, Verify((0,), (1,))))
    assert varied(Varier.stretch, program, 1, 0, 2) == (PROMPT, Verify((0,), (3,)))


def test_stretch_of_what_is_verified() -> None:
    world = replace(DRAFTS, spec_algorithm="DSPARK", spec_steps=1, spec_topk=1, spec_draft_tokens=4)
    program = Program(world, (PROMPT, Verify((0,), (1,), 0)))
    assert varied(Varier.stretch, program, 1, 1, 0, 1) == (PROMPT, Verify((0,), (1,), 0, verify_lens=(2,)))


def test_flip_of_kept() -> None:
    assert varied(Varier.flip, PROGRAM, 1) == (PROMPT, STEP, Finish((0,), keep=1))


def test_drafts_of_one_step_are_never_decoded() -> None:
    world = replace(DRAFTS, spec_steps=1, spec_draft_tokens=2)
    program = Program(world, (PROMPT, Verify((0,), (1,))))
    assert varied(Varier.flip, program, 2) == program.ops


def test_gather_takes_everybody_who_can_take_part() -> None:
    program = Program(PLAIN, (Extend((Row(0, 3), Row(1, 2))), Decode((0,)), Decode((1,))))
    assert varied(Varier.gather, program, 1) == (program.ops[0], Decode((0, 1)), Decode((0, 1)))


def test_inserted_request_is_none_that_begins_further_on() -> None:
    program = Program(PLAIN, (PROMPT, Extend((Row(1, 2),)), Decode((0, 1))))
    for seed in range(30):
        ops = Varier(Seeded(seed), program, LIMITS).insert(program).ops
        begun = [row.request for op in ops for row in getattr(op, "rows", ())]
        assert len(begun) == len(set(begun))


def test_change_of_the_world_leaves_the_ops_that_still_run() -> None:
    changed = fitted(Varier(Seeded(1), PROGRAM, LIMITS).change_world(PROGRAM), LIMITS)
    assert changed.world != PROGRAM.world
    assert [op.kind for op in changed.ops] in (["extend", "decode", "finish"], ["extend", "verify", "finish"])


def test_given_worlds_are_changed_for_one_another() -> None:
    other = replace(PLAIN, page_size=4)
    limits = Limits(pairs=(), worlds=(PLAIN, other))
    worlds = {Varier(Seeded(seed), PROGRAM, limits).change_world(PROGRAM).world for seed in range(10)}
    assert worlds == {PLAIN, other}
